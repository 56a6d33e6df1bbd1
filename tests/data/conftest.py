from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache or data folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("ACR_CACHE", str(cache))
    monkeypatch.delenv("ACR_DATA", raising=False)
    return cache
