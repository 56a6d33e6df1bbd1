from typing import get_args

import pytest
import torch
from method_learning import Learning

from acr.methods import soif as soif_module
from acr.methods.maths.selection import Weighting
from acr.methods.soif import SOIFOptions


def test_the_memory_is_offered_the_last_epoch_only():
    learning = Learning("soif", buffer_size=20)
    learning.run(0, 1, 0)
    assert len(learning.method.buffer) == 0
    learning.run(0, 1, 2)
    assert len(learning.method.buffer) == 16


def test_the_batch_that_overflows_the_memory_begins_at_its_start():
    learning = Learning("soif", buffer_size=12)
    learning.run(0, 1, 0)
    batches = []
    for _ in range(2):
        batches.append(learning.batch())
        learning.step()
    stored = learning.method.buffer.images
    assert torch.equal(stored[8:], batches[1].plain[:4])
    assert torch.equal(stored[:4], batches[1].plain[4:])
    assert torch.equal(stored[4:8], batches[0].plain[4:])


def test_a_memory_smaller_than_a_batch_keeps_the_last_that_came():
    learning = Learning("soif", buffer_size=5, epochs=1)
    batch = learning.batch()
    learning.step()
    assert learning.method.buffer.images[:3].equal(batch.plain[5:])
    assert learning.method.buffer.images[3:].equal(batch.plain[3:5])


def test_the_default_weighting_is_that_of_the_published_numbers():
    assert SOIFOptions().weighting == "released"


@pytest.mark.parametrize("weighting", get_args(Weighting))
def test_surviving_new_samples_take_the_slots_of_deleted_ones(monkeypatch, weighting):
    learning = Learning("soif", buffer_size=16, options={"weighting": weighting})
    learning.run(0, 1, 2)
    method, batch = learning.method, learning.batch()
    images, calls = method.buffer.images.clone(), []
    select = soif_module.select_rows

    def recorded(*args, **options):
        calls.append((select(*args, **options), args, options))
        return calls[-1][0]

    monkeypatch.setattr(soif_module, "select_rows", recorded)
    learning.step()
    ((chosen, (kernel, labels), options),) = calls
    assert options["weighting"] == weighting
    assert (options["seen"], options["batch"], options["stored_count"]) == (16, 8, 16)
    assert kernel.shape == (24, 24)
    assert labels[:8].equal(batch.labels)
    expected = images.clone()
    expected[chosen.slots] = batch.plain[chosen.new_rows]
    assert torch.equal(method.buffer.images, expected)
    assert method.buffer.seen == 24
    torch.testing.assert_close(method.kernel.stored, fresh_kernel(method), rtol=1e-4, atol=1e-5)


def fresh_kernel(method):
    from acr.methods.maths.ntk import symmetric_kernel

    return symmetric_kernel(method.network.normalise(method.buffer.images))


def test_classes_count_in_the_order_of_arrival(monkeypatch):
    learning = Learning("soif", tasks=((3,), (1, 0)), buffer_size=8, epochs=1)
    found = []
    select = soif_module.select_rows
    monkeypatch.setattr(
        soif_module,
        "select_rows",
        lambda k, labels, **o: (found.append((labels, o["num_classes"])), select(k, labels, **o))[1],
    )
    learning.run(1)
    assert all(labels.eq(0).all() and number == 1 for labels, number in found)
    learning.run()
    assert found[-1][1] == 3
    assert found[-1][0].max() <= 2
