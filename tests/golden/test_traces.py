"""Every method still does what it did when its golden trace was recorded."""

from __future__ import annotations

import json

import pytest
import torch
from traces import (
    FILE,
    METHODS,
    accuracy_deviation,
    loss_deviation,
    memory_deviation,
    plain_trace,
    trace,
)

from acr.methods.method import REGISTRY

RECORDED = json.loads(FILE.read_text())
MARGIN = 1000
"""How much further than the recorded kinds of processor an unknown one may deviate. The recorded deviations lie
between 1e-15 and 1e-8; a change of the mathematics shows at 1e-3 and above."""
ROUNDING = 1e-12
"""What float64 sums of some thousand terms in another order differ by, grown over the steps."""


DRAWN = 976413892
"""What the version of PyTorch that recorded the traces draws below 2^31 with the seed 7; version 2.6 draws another."""


@pytest.mark.parametrize("method", METHODS)
def test_the_golden_trace_is_met(method):
    if method == "metasp" and int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(7))) != DRAWN:
        pytest.skip("this version of PyTorch draws other whole numbers, so that k-means starts from other centres")
    recorded, now = RECORDED[method], trace(method)
    allowed = recorded["deviation"]
    assert loss_deviation(recorded, now) <= MARGIN * allowed["losses"] + ROUNDING
    assert accuracy_deviation(recorded, now) <= allowed["accuracy"]
    assert memory_deviation(recorded, now) <= allowed["memory"]


def test_recorded_deviations_leave_room_to_find_a_fault():
    assert all(MARGIN * trace["deviation"]["losses"] < 1e-3 for trace in RECORDED.values())
    assert all(trace["deviation"]["accuracy"] == trace["deviation"]["memory"] == 0 for trace in RECORDED.values())


def test_every_method_of_the_package_has_one():
    assert sorted(RECORDED) == sorted(name for name, found in REGISTRY.items() if isinstance(found, str))


def test_two_traces_on_one_machine_are_equal_to_the_last_bit():
    assert json.dumps(plain_trace("acr")) == json.dumps(plain_trace("acr"))
