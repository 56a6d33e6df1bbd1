import torch
from balanced_replay import BalancedReplay, balanced_slots

from acr.testing import check_method


def test_every_class_has_the_same_share():
    labels = torch.tensor([7] * 50 + [3] * 10 + [5] * 2)
    drawn = balanced_slots(labels, 14, torch.Generator().manual_seed(0))
    assert len(drawn.unique()) == 14
    counts = {label: int((labels[drawn] == label).sum()) for label in (7, 3, 5)}
    assert counts == {7: 6, 3: 6, 5: 2}, "the rarest gives all that it has"


def test_it_conforms():
    print(check_method(BalancedReplay))
