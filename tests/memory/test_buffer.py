import pytest
import torch

from acr.errors import InputError
from acr.memory import Buffer


def images(n, value=0):
    return torch.full((n, 1, 2, 2), value, dtype=torch.uint8)


def test_append_write_keep():
    buffer = Buffer(4, (1, 2, 2), {"score": ()})
    buffer.append(images(3, 7), torch.tensor([0, 1, 2]), 0, score=torch.tensor([0.1, 0.2, 0.3]))
    buffer.write(torch.tensor([1]), images(1, 9), torch.tensor([5]), 1, score=torch.tensor([0.9]))
    assert buffer.labels.tolist() == [0, 5, 2]
    assert buffer.tasks.tolist() == [0, 1, 0]
    assert buffer.images[1].unique().tolist() == [9]
    buffer.keep(torch.tensor([2, 1]))
    assert buffer.labels.tolist() == [2, 5]
    assert buffer.column("score").tolist() == pytest.approx([0.3, 0.9])
    assert len(buffer) == 2


def test_storage_is_a_byte_a_value():
    plain = Buffer(100, (3, 32, 32))
    assert plain.nbytes == 100 * (3072 + 16)


def test_refuses_what_does_not_fit():
    buffer = Buffer(2, (1, 2, 2))
    with pytest.raises(InputError, match="holds 2 samples"):
        buffer.append(images(3), torch.zeros(3, dtype=torch.int64), 0)
    with pytest.raises(InputError, match="gap"):
        buffer.write(torch.tensor([1]), images(1), torch.tensor([0]), 0)
    with pytest.raises(InputError, match="columns"):
        buffer.append(images(1), torch.tensor([0]), 0, score=torch.tensor([1.0]))
    with pytest.raises(InputError, match="one sample or more"):
        Buffer(0, (1, 2, 2))


def test_draw_is_uniform_without_replacement():
    buffer = Buffer(10, (1, 2, 2))
    buffer.append(images(10), torch.arange(10), 0)
    generator = torch.Generator().manual_seed(0)
    rounds, counts, firsts = 3000, torch.zeros(10), torch.zeros(10)
    for _ in range(rounds):
        slots = buffer.draw(4, generator)
        assert len(set(slots.tolist())) == 4
        counts[slots] += 1
        firsts[slots[0]] += 1
    for seen, expected in ((counts, rounds * 0.4), (firsts, rounds * 0.1)):
        chi_square = ((seen - expected) ** 2 / expected).sum()
        assert chi_square < 27.9  # 0.999 quantile with 9 degrees of freedom
    assert sorted(buffer.draw(99, generator).tolist()) == list(range(10))


def test_state_round_trip():
    buffer = Buffer(5, (1, 2, 2), {"logits": (3,)})
    buffer.append(images(2, 3), torch.tensor([4, 1]), torch.tensor([0, 1]), logits=torch.rand(2, 3))
    buffer.seen = 17
    other = Buffer(5, (1, 2, 2), {"logits": (3,)})
    other.append(images(4), torch.zeros(4, dtype=torch.int64), 9, logits=torch.zeros(4, 3))
    other.load_state_dict(buffer.state_dict())
    assert len(other) == 2
    assert other.seen == 17
    assert torch.equal(other.images, buffer.images)
    assert torch.equal(other.tasks, buffer.tasks)
    assert torch.equal(other.column("logits"), buffer.column("logits"))
