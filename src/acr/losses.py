"""Losses as pure functions."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.errors import InputError

NORM_FLOOR = 1e-6
"""Added to the length of a vector before dividing by it."""


def unit(vectors: Tensor) -> Tensor:
    """Each row divided by its length plus a floor: v / (‖v‖₂ + 1e-6)."""
    return vectors / (vectors.norm(dim=-1, keepdim=True) + NORM_FLOOR)


def proxy_contrastive_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    temperature: float = 0.09,
    denominator: Literal["counted", "set"] = "counted",
) -> Tensor:
    """The proxy-based contrastive loss of ACR (and of PCR, Lin et al. 2023): samples are contrasted with class proxies.

    With n_c samples of class c in the batch, f̂ and ŵ of unit length and τ the temperature,

        L = (1/N) Σ_i [ log Σ_{c: n_c>0} n_c · exp(f̂_i·ŵ_c/τ) − f̂_i·ŵ_{y_i}/τ ].

    Classes that are absent from the batch get no gradient. The sum runs over classes, so N x K products are formed,
    never N x N.

    Args:
        embeddings: f, N x features; they need not have unit length.
        labels: y, N classes.
        proxies: w, K x features, one per class; likewise.
        temperature: τ.
        denominator: ``counted`` keeps the factor n_c, so that each occurrence of a class is one proxy in the sum;
            ``set`` takes every class present once (n_c → 1), as in the paper's formula.

    Returns a scalar.

    >>> f = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(float(proxy_contrastive_loss(f, torch.tensor([0, 1]), f, temperature=1.0)), 4)
    0.3133
    """
    if denominator not in ("counted", "set"):
        raise InputError(f"The denominator must be 'counted' or 'set'; got {denominator!r}.")
    # f̂_i·ŵ_c/τ for all classes.
    logits = unit(embeddings) @ unit(proxies).T / temperature
    own = logits.gather(1, labels[:, None]).squeeze(1)
    # n_c·exp(a) = exp(a + log n_c), and exp(a + log 0) = 0: an absent class drops out of the sum without anybody having
    # to ask the device which classes are present.
    counts = class_counts(labels, len(proxies), logits.dtype)
    if denominator == "set":
        counts = counts.clamp(max=1)
    return (torch.logsumexp(logits + counts.log(), dim=1) - own).mean()


def supervised_contrastive_loss(projections: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """The supervised contrastive loss (Khosla et al. 2020): samples are contrasted with one another.

    With ẑ of unit length, τ the temperature and P(i) the other samples of the class of sample i,

        L = (1/N) Σ_i (1/|P(i)|) Σ_{p∈P(i)} [ log Σ_{a≠i} exp(ẑ_i·ẑ_a/τ) − ẑ_i·ẑ_p/τ ].

    Args:
        projections: z, N x features; they need not have unit length.
        labels: y, N classes. Every class must occur twice or more: give two views of each image.
        temperature: τ.

    Returns a scalar.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(supervised_contrastive_loss(z, torch.tensor([0, 0, 1, 1]), temperature=1.0)), 4)
    0.5514
    """
    z = F.normalize(projections, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    logits = (z @ z.T / temperature).masked_fill(itself, float("-inf"))
    positive = (labels[:, None] == labels) & ~itself
    log_share = logits - logits.logsumexp(1, keepdim=True)
    return -(log_share.masked_fill(~positive, 0).sum(1) / positive.sum(1)).mean()


def class_counts(labels: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """How often each of ``classes`` classes occurs among the labels, on their device and without a wait."""
    counts = torch.zeros(classes, dtype=dtype, device=labels.device)
    return counts.index_add_(0, labels, torch.ones_like(labels, dtype=dtype))


def masked_cross_entropy(logits: Tensor, labels: Tensor, allowed: Tensor) -> Tensor:
    """Mean cross-entropy over some outputs only; a scalar.

    Args:
        logits: n x K.
        labels: n classes, all of them allowed.
        allowed: K numbers, 0 where an output does not take part.
    """
    return F.cross_entropy(logits.masked_fill(allowed == 0, float("-inf")), labels)
