import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from acr.data.sources import digits


@pytest.mark.parametrize("readable", [True, False])
def test_the_digits_are_scikit_learns(readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the file, or asked of scikit-learn where the file is not at its usual place."""
    if not readable:
        monkeypatch.setattr(digits, "find_spec", lambda name: None)
    pixels, labels = digits.pixels_and_labels()
    theirs = load_digits()
    assert pixels.dtype == theirs.images.dtype
    assert np.array_equal(pixels, theirs.images)
    assert np.array_equal(labels, theirs.target)


def test_reading_them_does_not_import_scikit_learn() -> None:
    code = "import sys; from acr.data.sources.digits import pixels_and_labels; pixels_and_labels(); "
    code += "assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
