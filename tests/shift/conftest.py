from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images


@pytest.fixture(scope="session")
def photographs() -> np.ndarray:
    """48 patches of scikit-learn's two photographs, 3 x 32 x 32."""
    patches = []
    for photograph in load_sample_images().images:
        small = np.asarray(Image.fromarray(photograph).resize((256, 192), Image.Resampling.BOX))
        rows = [small[top : top + 32, left : left + 32] for top in range(0, 160, 40) for left in range(0, 240, 40)]
        patches.extend(rows)
    return np.ascontiguousarray(np.stack(patches).transpose(0, 3, 1, 2))
