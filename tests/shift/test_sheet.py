from __future__ import annotations

import numpy as np
import pytest

from acr.errors import InputError
from acr.shift import CORRUPTIONS, corrupt
from acr.shift.sheet import draw


def test_sheet_shows_what_corrupt_gives(photographs: np.ndarray) -> None:
    sheet = np.asarray(draw(photographs[:2], ["snow", "fog", "contrast"], [1, 5], "cifar-c", seed=4))
    shown = corrupt(photographs[1:2], "fog", 5, "cifar-c", 4, [1])[0].transpose(1, 2, 0)
    large = shown.repeat(2, axis=0).repeat(2, axis=1)
    height, width = large.shape[:2]
    rows, columns = sheet.shape[0] - height + 1, sheet.shape[1] - width + 1
    corners = ((r, c) for r, c in np.argwhere((sheet[:rows, :columns] == large[0, 0]).all(axis=-1)))
    assert any(np.array_equal(sheet[r : r + height, c : c + width], large) for r, c in corners)


def test_small_grey_images_and_refusals() -> None:
    digits = np.zeros((1, 1, 8, 8), np.uint8)
    sheet = draw(digits)
    assert sheet.height > 64 * len(CORRUPTIONS)
    with pytest.raises(InputError, match="at least one corruption"):
        draw(digits, [])
    with pytest.raises(InputError, match="at least one image"):
        draw(digits[:0])
