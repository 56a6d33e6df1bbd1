import pytest
import torch
from method_learning import Learning

from acr.methods.gss import contend


def literal(stored, scores, draws):
    """The rule as it is written: one sample after the other, on lists."""
    standing, taken = list(stored), {}
    for row, (score, (where, whether)) in enumerate(zip(scores, draws, strict=True)):
        total, slot = sum(standing), 0
        while sum(standing[: slot + 1]) <= where * total:
            slot += 1
        if whether < standing[slot] / (standing[slot] + score):
            standing[slot], taken[slot] = score, row
    return taken


def test_contention_follows_the_rule_sample_by_sample():
    generator = torch.Generator().manual_seed(0)
    taken_at_all = 0
    for _ in range(50):
        stored, scores = (
            2 * torch.rand(6, generator=generator).double(),
            2 * torch.rand(9, generator=generator).double(),
        )
        draws = torch.rand(9, 2, generator=generator, dtype=torch.float64)
        slots, rows = contend(stored, scores, draws)
        expected = literal(stored.tolist(), scores.tolist(), draws.tolist())
        assert dict(zip(slots.tolist(), rows.tolist(), strict=True)) == expected
        taken_at_all += len(slots)
    assert taken_at_all > 50


def test_zero_scores_neither_divide_nor_move():
    slots, rows = contend(torch.zeros(3), torch.zeros(4), torch.rand(4, 2, generator=torch.Generator().manual_seed(0)))
    assert slots.numel() == rows.numel() == 0


def test_slots_are_taken_in_proportion_to_their_scores():
    generator = torch.Generator().manual_seed(1)
    stored, counts = torch.tensor([0.5, 1.0, 1.5]), torch.zeros(3)
    for _ in range(3000):
        slots, _ = contend(stored, torch.zeros(1), torch.rand(1, 2, generator=generator, dtype=torch.float64))
        counts[slots] += 1
    assert torch.allclose(counts / 3000, stored / 3, atol=0.04)


def test_the_memory_fills_first_and_then_only_batches_that_point_away_contend(monkeypatch):
    learning = Learning("gss", buffer_size=12)
    method = learning.method
    learning.step()
    assert len(method.buffer) == 8
    assert method.buffer.column("score").eq(0.1).all()
    learning.step()
    assert len(method.buffer) == 12
    assert float(method.buffer.column("score")[8:].min()) >= 0
    images = method.buffer.images.clone()
    monkeypatch.setattr(method, "scores", lambda batch: (torch.tensor(1.2), torch.full((len(batch),), 0.1)))
    learning.step()
    assert torch.equal(method.buffer.images, images)
    monkeypatch.setattr(method, "scores", lambda batch: (torch.tensor(0.9), torch.full((len(batch),), 1e-9)))
    batch = learning.batch()
    learning.step()
    changed = (method.buffer.images != images).flatten(1).any(1)
    assert changed.any()
    assert torch.allclose(method.buffer.column("score")[changed], torch.tensor(1e-9))
    stored, offered = method.buffer.images[changed].flatten(1), batch.plain.flatten(1)
    assert (stored[:, None] == offered).all(2).any(1).all()
    assert method.buffer.seen == 32


def test_each_sample_may_be_gated_for_itself_and_openings_are_counted(monkeypatch):
    for gate, share in (("batch", 0.0), ("sample", 0.25)):
        learning = Learning("gss", buffer_size=8, options={"gate": gate})
        learning.step()
        method = learning.method
        assert method.facts() == {}  # the memory was not full
        images, batch = method.buffer.images.clone(), learning.batch()
        scores = torch.tensor([1e-9, 1.5, 1.5, 1e-9, 1.5, 1.5, 1.5, 1.5])
        monkeypatch.setattr(method, "scores", lambda batch, scores=scores: (torch.tensor(1.2), scores))
        learning.step()
        assert method.facts() == {"gate_open": share}
        changed = (method.buffer.images != images).flatten(1).any(1)
        assert changed.any() == (gate == "sample")
        offered = batch.plain[[0, 3]].flatten(1)
        assert (method.buffer.images[changed].flatten(1)[:, None] == offered).all(2).any(1).all()
        state = method.state_dict()
        assert (state["gate_opened"], state["gate_tried"]) == ((0, 1) if gate == "batch" else (2, 8))


@pytest.mark.parametrize("size", [1, 3])
def test_scores_are_one_plus_the_largest_cosine_with_the_references(size):
    learning = Learning("gss", buffer_size=12, options={"reference_size": size, "references": 4 if size > 1 else 32})
    learning.run(0, 0, 2)
    method, batch = learning.method, learning.batch()
    together, each = method.scores(batch)
    network = method.network.eval()

    def gradient(images, labels):
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        return torch.cat([p.grad.reshape(-1) for p in network.parameters()]).double()

    groups = method.draw(12, "compare").split(size)
    stored = torch.stack([gradient(method.buffer.images[s], method.buffer.labels[s]) for s in groups])
    new = torch.stack([gradient(batch.plain[i : i + 1], batch.labels[i : i + 1]) for i in range(len(batch))])
    cosines = torch.nn.functional.normalize(new, dim=1) @ torch.nn.functional.normalize(stored, dim=1).T
    torch.testing.assert_close(each.double(), 1 + cosines.max(1).values, rtol=1e-3, atol=1e-4)
    whole = torch.nn.functional.normalize(gradient(batch.plain, batch.labels), dim=0)
    whole_cosines = torch.nn.functional.normalize(stored, dim=1) @ whole
    torch.testing.assert_close(together.double(), 1 + whole_cosines.max(), rtol=1e-3, atol=1e-4)
