"""What must hold of the memory for any stream, any size and any interruption."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.memory import Buffer, ConfidenceTable
from acr.memory.policies import POLICIES, Balanced, make_policy
from acr.training.checkpoint import Checkpoints, clone_state

streams = st.lists(  # tasks: for each of its classes, how many samples
    st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=5
)


class Learner:
    """A policy, its memory and the current task's confidence, as a method holds them."""

    def __init__(self, policy, capacity, epochs=3):
        self.policy = make_policy(policy)
        self.buffer = Buffer(capacity, (1, 1, 3), self.policy.columns)
        self.table = ConfidenceTable(0, epochs)

    def state_dict(self):
        return {
            "policy": self.policy.state_dict(),
            "buffer": self.buffer.state_dict(),
            "table": self.table.state_dict(),
        }

    def load_state_dict(self, state):
        self.policy.load_state_dict(state["policy"])
        self.buffer.load_state_dict(state["buffer"])
        self.table.load_state_dict(state["table"])


def samples(task, sizes):
    """Images that carry task, class and number, so that a mixed-up row shows; classes come in no order."""
    first = 10 * task
    rows = [(task, label, number) for label, n in enumerate(sizes) for number in range(n)]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(task))
    images = torch.tensor(rows, dtype=torch.uint8)[order].view(-1, 1, 1, 3)
    return images, first + images[:, 0, 0, 1].long()


def learn(learner, stream, batch, epochs=3, interrupt=None):
    """Everything a run does with the memory. ``interrupt`` may replace the learner by a restored one at any step."""
    for task, sizes in enumerate(stream):
        images, labels = samples(task, sizes)
        learner.table = ConfidenceTable(len(images), epochs)
        for epoch in range(epochs):
            for step, start in enumerate(range(0, len(images), batch)):
                rows = torch.arange(start, min(start + batch, len(images)))
                draws = torch.Generator().manual_seed(1000 * task + 100 * epoch + step)
                learner.table.record(epoch, rows, torch.rand(len(rows), generator=draws))
                learner.policy.observe(learner.buffer, images[rows], labels[rows], task, draws)
                check(learner, stream, task)
                if interrupt:
                    learner = interrupt(learner)
        draws = torch.Generator().manual_seed(task)
        learner.policy.end_task(learner.buffer, images, labels, task, draws, learner.table)
        check(learner, stream, task, ended=True)
        if interrupt:
            learner = interrupt(learner)
    return learner


def check(learner, stream, task, ended=False):
    buffer = learner.buffer
    assert len(buffer) <= buffer.capacity
    rows = buffer.images.view(-1, 3).long()
    assert torch.equal(rows[:, 0], buffer.tasks)  # every row is still one sample: image, label and task of the same
    assert torch.equal(10 * rows[:, 0] + rows[:, 1], buffer.labels)
    assert all(t <= task for t in buffer.tasks.tolist())
    if isinstance(learner.policy, Balanced):
        assert len({tuple(row) for row in rows.tolist()}) == len(rows)  # nothing is stored twice
        if ended:
            offered = sum(sum(sizes) for sizes in stream[: task + 1])
            assert len(buffer) <= min(buffer.capacity, offered)
            per_part = {}
            for t, c in zip(buffer.tasks.tolist(), buffer.labels.tolist(), strict=True):
                per_part[t, c] = per_part.get((t, c), 0) + 1
            rows_of = enumerate(zip(learner.policy.parts, learner.policy.quotas, strict=True))
            quotas = {(t, c): q for t, (part, row) in rows_of
                      for c, q in zip(part, row, strict=True)}  # fmt: skip
            assert per_part == {part: q for part, q in quotas.items() if q}
            assert sum(quotas.values()) == len(buffer)
    else:
        assert len(buffer) == min(buffer.capacity, buffer.seen)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), streams, st.integers(1, 30), st.integers(1, 9))
def test_budget_rows_and_quotas_for_any_stream(policy, stream, capacity, batch):
    learn(Learner(policy, capacity), stream, batch)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), streams, st.integers(1, 30), st.integers(1, 9), st.data())
def test_interruptions_change_nothing(policy, stream, capacity, batch, data):
    """Saved and restored at any steps, into a new memory with other content in it: the same memory in the end."""

    def interrupt(learner):
        if not data.draw(st.booleans()):
            return learner
        state = clone_state(learner.state_dict())
        other = Learner(policy, capacity)
        strangers = torch.full((1, 1, 1, 3), 9, dtype=torch.uint8)
        columns = {name: torch.ones(1) for name in other.policy.columns}
        other.buffer.append(strangers, torch.tensor([9]), 7, **columns)
        other.load_state_dict(state)
        return other

    undisturbed = learn(Learner(policy, capacity), stream, batch)
    disturbed = learn(Learner(policy, capacity), stream, batch, interrupt=interrupt)
    for name in ("images", "labels", "tasks", "seen"):
        a, b = getattr(undisturbed.buffer, name), getattr(disturbed.buffer, name)
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    for name in undisturbed.buffer.column_names:
        assert torch.equal(undisturbed.buffer.column(name), disturbed.buffer.column(name))


def test_the_state_of_a_memory_goes_through_files(tmp_path):
    learner = learn(Learner("challenging", 7), [[5, 4], [3]], 4)
    Checkpoints(tmp_path, "run").save(1, learner.state_dict())
    other = Learner("challenging", 7)
    other.load_state_dict(Checkpoints(tmp_path, "run").load()[1])
    assert torch.equal(learner.buffer.images, other.buffer.images)
    assert learner.policy.quotas == other.policy.quotas


def test_draw_never_leaves_the_filled_slots():
    for filled in range(1, 12):
        buffer = Buffer(12, (1, 1, 3))
        buffer.append(torch.zeros(filled, 1, 1, 3, dtype=torch.uint8), torch.zeros(filled, dtype=torch.int64), 0)
        for size in (1, 5, 12, 40):
            slots = buffer.draw(size, torch.Generator().manual_seed(size)).tolist()
            assert len(slots) == len(set(slots)) == min(size, filled)
            assert set(slots) <= set(range(filled))
