import pytest

from acr.report.tables import Cell
from acr.reproduce.figures import interval, shown_seeds


def test_two_seeds_are_shown_as_dots_and_three_as_an_interval():
    """Student's t for two seeds is 12.7: such an interval would hide the figure."""
    one, two, three = (Cell(dict(enumerate(values))) for values in ([5.0], [1.0, 2.0], [1.0, 2.0, 3.0]))
    assert [interval(cell) for cell in (one, two)] == [None, None]
    assert interval(three) == pytest.approx(2.484, abs=1e-3)
    assert [shown_seeds(cell) for cell in (one, two, three)] == [[], [1.0, 2.0], []]
