import copy

import pytest
import torch
import torch.nn.functional as F
from method_learning import Learning

from acr.losses import masked_cross_entropy
from acr.runs.resolve import make_config


def test_only_the_given_classes_compete():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.tensor([1, 3, 3, 1])
    loss = masked_cross_entropy(logits, labels, torch.tensor([0, 1, 0, 1, 0]))
    torch.testing.assert_close(loss, F.cross_entropy(logits[:, [1, 3]], torch.tensor([0, 1, 1, 0])))
    loss.backward()
    assert logits.grad[:, [0, 2, 4]].eq(0).all()
    assert logits.grad[:, [1, 3]].ne(0).all()


def test_first_task_competes_among_all_seen_and_does_not_replay():
    learning = Learning("er-ace", tasks=((0, 1, 2), (3,)))
    learning.run(0, 0, 2)
    batch = learning.batch()
    network = copy.deepcopy(learning.method.network).train()
    expected = F.cross_entropy(network(batch.augmented)[:, :3], batch.labels)
    torch.testing.assert_close(learning.step(), expected.detach())


def test_later_tasks_compete_within_the_batch_and_by_replay_among_all_seen():
    learning = Learning("er-ace", tasks=((0,), (2, 3), (1,)))
    learning.run(1, 0, 2)
    method, batch = learning.method, learning.batch()
    network = copy.deepcopy(method.network).train()
    present = torch.unique(batch.labels)
    position = torch.searchsorted(present, batch.labels)
    expected = F.cross_entropy(network(batch.augmented)[:, present], position)
    images, labels = method.retrieve()
    seen = [0, 2, 3]
    expected = expected + F.cross_entropy(network(images)[:, seen], torch.searchsorted(torch.tensor(seen), labels))
    torch.testing.assert_close(learning.step(), expected.detach())


@pytest.mark.parametrize("dataset", ["split-cifar100", "split-mini-imagenet", "split-tiny-imagenet"])
def test_its_rate_on_the_paper_s_data_sets_is_its_own(dataset):
    assert make_config({"method": "er-ace", "dataset": dataset}).learning_rate == 0.03
