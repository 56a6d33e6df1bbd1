import numpy as np
import torch

from acr.memory import ConfidenceTable


def test_mean_and_variance_by_hand():
    table = ConfidenceTable(2, 3)
    for epoch, column in enumerate([[0.2, 0.5], [0.4, 0.5], [0.9, 0.5]]):
        table.record(epoch, torch.tensor([0, 1]), torch.tensor(column))
    table.record(3, torch.tensor([0, 1]), torch.tensor([9.0, 9.0]))  # past E: not kept
    np.testing.assert_allclose(table.mean(), [0.5, 0.5], atol=1e-7)
    np.testing.assert_allclose(table.variance(), [(0.09 + 0.01 + 0.16) / 3, 0], atol=1e-7)


def test_indices_in_any_order_and_state():
    table = ConfidenceTable(3, 1)
    table.record(0, torch.tensor([2, 0]), torch.tensor([0.25, 0.75]))
    other = ConfidenceTable(0, 1)
    other.load_state_dict(table.state_dict())
    assert other.values[:, 0].tolist()[::2] == [0.75, 0.25]
    assert torch.isnan(other.values[1, 0])
