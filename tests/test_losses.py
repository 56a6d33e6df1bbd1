import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from acr.errors import InputError
from acr.losses import masked_cross_entropy, proxy_contrastive_loss


def by_the_formula(embeddings, labels, proxies, temperature, counted):
    """The formula, sum by sum, with nothing clever."""
    n, total = len(labels), 0.0
    present = sorted(set(labels.tolist()))
    for i in range(n):
        f = embeddings[i] / (embeddings[i].norm() + 1e-6)
        terms = []
        for c in present:
            w = proxies[c] / (proxies[c].norm() + 1e-6)
            multiplicity = int((labels == c).sum()) if counted else 1
            terms.append(multiplicity * torch.exp(f @ w / temperature))
            if c == int(labels[i]):
                own = f @ w / temperature
        total = total + torch.log(torch.stack(terms).sum()) - own
    return total / n


batches = st.tuples(
    st.integers(1, 12), st.integers(1, 6), st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([0.09, 0.5, 2.0])
)


@given(batches, st.booleans())
def test_value_and_gradient_follow_the_formula(sizes, counted):
    n, classes, features, seed, temperature = sizes
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.rand(n, features, generator=g, dtype=torch.float64).requires_grad_()
    proxies = torch.randn(classes, features, generator=g, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, classes, (n,), generator=g)
    expected = by_the_formula(embeddings, labels, proxies, temperature, counted)
    wanted = torch.autograd.grad(expected, [embeddings, proxies])
    loss = proxy_contrastive_loss(embeddings, labels, proxies, temperature, "counted" if counted else "set")
    got = torch.autograd.grad(loss, [embeddings, proxies])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(got, wanted)
    absent = [c for c in range(classes) if c not in labels]
    assert (got[1][absent] == 0).all()


@given(batches)
def test_counted_loss_is_cross_entropy_with_log_counts(sizes):
    """Equal gradients; the values differ by the mean of log n over the samples' own classes."""
    n, classes, features, seed, temperature = sizes
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.rand(n, features, generator=g, dtype=torch.float64).requires_grad_()
    proxies = torch.randn(classes, features, generator=g, dtype=torch.float64)
    labels = torch.randint(0, classes, (n,), generator=g)
    counts = torch.bincount(labels, minlength=classes).double()
    unit = embeddings / (embeddings.norm(dim=1, keepdim=True) + 1e-6)
    logits = unit @ (proxies / (proxies.norm(dim=1, keepdim=True) + 1e-6)).T / temperature + counts.log()
    cross_entropy = F.cross_entropy(logits, labels)
    loss = proxy_contrastive_loss(embeddings, labels, proxies, temperature)
    torch.testing.assert_close(loss, cross_entropy + counts[labels].log().mean())
    torch.testing.assert_close(torch.autograd.grad(loss, embeddings), torch.autograd.grad(cross_entropy, embeddings))


def test_one_class_alone():
    """A batch of one class, n times: the loss is log n (counted) or 0 (set), whatever the embeddings."""
    f = torch.rand(5, 3)
    labels = torch.zeros(5, dtype=torch.int64)
    assert float(proxy_contrastive_loss(f, labels, torch.rand(2, 3))) == pytest.approx(math.log(5), abs=1e-5)
    assert float(proxy_contrastive_loss(f, labels, torch.rand(2, 3), denominator="set")) == pytest.approx(0, abs=1e-5)


def test_zero_embeddings_and_tiny_temperatures_stay_finite():
    f = torch.zeros(3, 4, requires_grad=True)
    loss = proxy_contrastive_loss(f, torch.tensor([0, 1, 1]), torch.rand(2, 4), temperature=1e-3)
    loss.backward()
    assert torch.isfinite(loss)
    big = proxy_contrastive_loss(torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([1, 0]), torch.eye(2), temperature=1e-3)
    assert float(big) == pytest.approx(1000, rel=1e-3)


def test_unknown_denominator():
    with pytest.raises(InputError, match="'counted' or 'set'"):
        proxy_contrastive_loss(torch.rand(2, 2), torch.tensor([0, 1]), torch.rand(2, 2), denominator="all")  # type: ignore[arg-type]


def test_masked_cross_entropy_is_that_of_the_columns_alone():
    logits = torch.randn(4, 6)
    labels = torch.tensor([1, 3, 3, 1])
    alone = F.cross_entropy(logits[:, [1, 3]], torch.tensor([0, 1, 1, 0]))
    torch.testing.assert_close(masked_cross_entropy(logits, labels, torch.tensor([0, 1, 0, 1, 0, 0])), alone)
