import pytest

from acr.methods import method as registry
from acr.methods.er import ER

PAPER_METHODS = ("gem", "agem", "er", "gss", "gdumb", "hal", "metasp", "soif", "acr")


@pytest.fixture
def paper_methods(monkeypatch):
    """The nine methods, those that this installation lacks played by a stand-in: layouts only need their names."""
    for name in PAPER_METHODS:
        if name not in registry.REGISTRY:
            monkeypatch.setitem(registry.REGISTRY, name, type("StandIn", (ER,), {"name": name}))
    return PAPER_METHODS
