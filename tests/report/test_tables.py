from acr.report.tables import Cell, ResultTable, mean_cell


def test_means_of_cells_go_seed_by_seed():
    both = mean_cell([Cell({0: 10.0, 1: 20.0}, printed=15.0), Cell({0: 30.0, 2: 40.0}, printed=25.0)])
    assert both.by_seed == {0: 20.0}
    assert both.printed == 20.0
    assert mean_cell([Cell({0: 1.0}, printed=1.0), Cell({0: 1.0})]).printed is None


def test_ranks_follow_what_is_shown():
    table = ResultTable("t", "t", [("", name) for name in "abcde"], [("", "x")])
    for i, value in enumerate([10.001, 10.0, 12.0, 3.0]):
        table.cells[i, 0] = Cell({0: value})
    table.cells[4, 0] = Cell({})
    assert [table.finish().cells[i, 0].rank for i in range(5)] == [2, 2, 1, 0, 0]  # 10.00 and 10.00 are equal
    table.better = "lower"
    assert [table.finish().cells[i, 0].rank for i in range(5)] == [2, 2, 0, 1, 0]
