"""Cosine similarities of single-sample gradients, with which GSS scores samples, without storing the gradients.

Aljundi, Lin, Goujaud and Bengio, "Gradient based sample selection for online continual learning", NeurIPS 2019
(the greedy variant). Taken literally, it needs one backward pass per sample and stores a gradient over all parameters
for each. Here one backward pass over all samples is enough, because batch norm in evaluation mode keeps samples
independent: the gradient at a layer's output belongs to one sample only, and together with the layer's input it gives
that sample's gradient for that layer. With g_i the gradient of sample i and g_i^l its part in layer l,

    ⟨g_i, g_j⟩ = Σ_l ⟨g_i^l, g_j^l⟩,   cos(g_i, g_j) = ⟨g_i, g_j⟩/(‖g_i‖‖g_j‖),

so each layer's products are added when the backward pass reaches it, and its gradients are discarded at once. That
needs to know what a layer computes. A network with layers of other kinds is taken literally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_GRADIENTS = 1 << 23  # entries of per-sample gradients that exist at a time (32 MB)
_TAPS = 1 << 20  # entries of unfolded inputs at a time: few enough to stay in the cache

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps logits and labels to one loss per sample."""


@dataclass(frozen=True)
class GradientSimilarity:
    """Cosines between gradients; 0 if one of the two is zero."""

    samples: Tensor
    """cos(g_i, g_j), Na x Nb: every sample of the first set with every sample (or group) of the second."""
    batch: Tensor
    """cos(g_batch, g_j), Nb values: the gradient of the first set's mean loss with each of the second."""


def cross_entropy_each(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of every sample, one value per row of logits."""
    return F.cross_entropy(logits, labels, reduction="none")


def gradient_similarity(
    network: nn.Module,
    images_a: Tensor,
    labels_a: Tensor,
    images_b: Tensor,
    labels_b: Tensor,
    loss: Loss = cross_entropy_each,
    group: int = 1,
) -> GradientSimilarity:
    """Cosines between gradients of single samples' losses, over all trainable parameters, in evaluation mode.

    One pass over all samples is enough if the network consists of convolutions, linear layers, and batch or group norms
    (each used once per pass), and of anything that has no parameters and keeps samples independent. With other layers
    the gradients are computed one sample at a time, and those of the second set are stored. Gradients, buffers and the
    training mode of the network are not changed. Everything stays on the device, and nothing waits for it.

    Args:
        network: maps images to logits.
        images_a, labels_a: the first set, Na samples.
        images_b, labels_b: the second set, Nb samples.
        loss: maps logits and labels to one loss per sample.
        group: compare with gradients of the mean loss of this many consecutive samples of the second set (divides Nb).
    """
    with _evaluation_mode(network), torch.enable_grad():
        try:
            _refuse_unsupported(network)
            return _layer_by_layer(network, images_a, labels_a, images_b, labels_b, loss, group)
        except _NotByLayersError:
            return _sample_by_sample(network, images_a, labels_a, images_b, labels_b, loss, group)


class _NotByLayersError(Exception):
    """The gradients of single samples cannot be told apart layer by layer; the message says at which layer."""


def _layer_by_layer(
    network: nn.Module, images_a: Tensor, labels_a: Tensor, images_b: Tensor, labels_b: Tensor, loss: Loss, group: int
) -> GradientSimilarity:
    sums = _Sums(len(images_a), len(images_b), labels_a.device, group)
    with _watched(network, sums) as entries:
        # The gradient of Σ_i ℓ_i at the output of a layer holds each sample's own gradient in its own row.
        losses = loss(network(torch.cat([images_a, images_b])), torch.cat([labels_a, labels_b]))
        torch.autograd.grad(losses.sum(), entries)
    return sums.cosines()


def _sample_by_sample(
    network: nn.Module, images_a: Tensor, labels_a: Tensor, images_b: Tensor, labels_b: Tensor, loss: Loss, group: int
) -> GradientSimilarity:
    """The definition, for layers of any kind: a forward and a backward pass per sample, or group of samples.

    The gradients of the second set are kept, one per sample or group; those of the first are compared and discarded.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]

    def gradients(images: Tensor, labels: Tensor, size: int = 1) -> Iterator[Tensor]:
        for some, their_labels in zip(torch.split(images, size), torch.split(labels, size), strict=True):
            found = torch.autograd.grad(
                loss(network(some), their_labels).sum(), parameters, allow_unused=True, materialize_grads=True
            )
            yield torch.cat([part.reshape(-1) for part in found])

    stored = torch.stack(list(gradients(images_b, labels_b, group)))
    inner, squares, total = [], [], torch.zeros_like(stored[0])
    for gradient in gradients(images_a, labels_a):
        inner.append(stored @ gradient)
        squares.append(gradient.square().sum())
        total += gradient
    sums = _Sums(len(images_a), len(images_b), labels_a.device, group)
    sums.add(torch.stack(inner), torch.cat([torch.stack(squares), stored.square().sum(1)]), total.square().sum())
    return sums.cosines()


class _Sums:
    """Inner products of per-sample gradients, summed over layers: ⟨g_i, g_j⟩, ‖g_i‖² and ‖Σ_i g_i‖²."""

    def __init__(self, count_a: int, count_b: int, device: torch.device, group: int = 1) -> None:
        self.count_a, self.count_b, self.group = count_a, count_b // group, group
        self._inner = torch.zeros(count_a, self.count_b, device=device)
        self._squares = torch.zeros(count_a + self.count_b, device=device)
        self._batch_square = torch.zeros((), device=device)  # of the summed gradient of the first set

    def add_rows(self, rows: Tensor) -> None:
        """Add a part of the gradients of all samples, one row per sample: the first set, then the second."""
        a, b = rows[: self.count_a], rows[self.count_a :]
        if self.group > 1:  # a mean and a sum of gradients have the same direction
            b = b.reshape(-1, self.group, *b.shape[1:]).sum(1)
            rows = torch.cat([a, b])
        self.add(a @ b.T, torch.linalg.vector_norm(rows, dim=1).square(), a.sum(0).square().sum())

    def add(self, inner: Tensor, squares: Tensor, batch_square: Tensor) -> None:
        """Add a part's ⟨g_i, g_j⟩ (Na x Nb), ‖g_i‖² (Na + Nb) and ‖Σ_i g_i‖²; it sets the precision."""
        self._inner = inner + self._inner.to(inner)
        self._squares = squares + self._squares.to(squares)
        self._batch_square = batch_square + self._batch_square.to(batch_square)

    def cosines(self) -> GradientSimilarity:
        """All cosines, after every layer has been added."""
        norms = self._squares.sqrt()
        norm_a, norm_b = norms[: self.count_a], norms[self.count_a :]
        tiny = torch.finfo(norms.dtype).tiny
        # cos(g_i, g_j) = ⟨g_i, g_j⟩/(‖g_i‖‖g_j‖)
        samples = self._inner / (norm_a[:, None] * norm_b).clamp_min(tiny)
        # cos(g_batch, g_j) = Σ_i ⟨g_i, g_j⟩/(‖Σ_i g_i‖‖g_j‖): a mean and a sum of gradients have the same direction.
        batch = self._inner.sum(0) / (self._batch_square.sqrt() * norm_b).clamp_min(tiny)
        return GradientSimilarity(samples.clamp(-1, 1), batch.clamp(-1, 1))


def _trains(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _refuse_unsupported(network: nn.Module) -> None:
    """Raise an error if a layer computes, or may compute, anything that :func:`_add_layer` does not know."""
    for name, module in network.named_modules():
        own = {kind for kind, p in module.named_parameters(recurse=False) if p.requires_grad}
        if not own:
            continue
        reason = None
        if isinstance(module, nn.Conv2d):
            if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
                reason = "only ungrouped convolutions with zero padding of a given width are supported"
        elif isinstance(module, nn.BatchNorm2d):
            if module.running_mean is None:
                reason = "without running averages, batch norm makes samples depend on each other"
        elif not isinstance(module, nn.Linear | nn.GroupNorm):
            reason = "only Conv2d, Linear, BatchNorm2d and GroupNorm layers are supported"
        # A layer of somebody else's may compute anything from its weights; those of this package are known.
        if not type(module).__module__.startswith(("torch.nn.modules.", "acr.networks.")) or own - {"weight", "bias"}:
            reason = reason or "it is not one of PyTorch's own layers"
        if reason:
            where = f"layer {name!r}" if name else "the network itself"
            raise _NotByLayersError(f"{where} ({type(module).__name__}): {reason}")


@contextmanager
def _evaluation_mode(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _watched(network: nn.Module, sums: _Sums) -> Iterator[list[Tensor]]:
    """Within this context, a backward pass through the network adds every layer's contribution to the sums.

    Yields the inputs of those layers that nothing differentiable precedes: differentiating with respect to these takes
    the backward pass through all layers without computing the gradients of the parameters.
    """
    entries: list[Tensor] = []
    used: set[nn.Module] = set()

    def before(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if inputs[0].requires_grad:
            return inputs
        entries.append(inputs[0].detach().requires_grad_())
        return (entries[-1], *inputs[1:])

    def after(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if module in used:
            raise _NotByLayersError(f"a {type(module).__name__} is used twice in one pass")
        used.add(module)
        entering, version = inputs[0].detach(), inputs[0]._version

        def arrived(gradient: Tensor) -> None:
            if entering._version != version:
                raise _NotByLayersError(f"the input of a {type(module).__name__} was changed in place after its use")
            with torch.no_grad():
                _add_layer(module, entering, gradient, sums)

        output.register_hook(arrived)  # type: ignore[no-untyped-call]

    layers = [m for m in network.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
    handles = [layer.register_forward_pre_hook(before) for layer in layers]
    handles += [layer.register_forward_hook(after) for layer in layers]
    try:
        yield entries
        if len(used) < len(layers):  # its weights may be used without calling it
            raise _NotByLayersError("a layer was not called")
    finally:
        for handle in handles:
            handle.remove()


def _add_layer(module: nn.Module, entering: Tensor, gradient: Tensor, sums: _Sums) -> None:
    """Add a layer's contribution, given its input (`entering`) and the gradient of the summed loss at its output."""
    if len(entering) != sums.count_a + sums.count_b:
        raise _NotByLayersError(f"the rows of the input of a {type(module).__name__} are not the samples")
    if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
        # y = weight·x̂ + bias per channel: the gradients are Σ_positions of D∘x̂ and of D, with D the gradient at y.
        if _trains(module.weight):
            sums.add_rows((gradient * _normalised(module, entering)).flatten(2).sum(2))
        if _trains(module.bias):
            sums.add_rows(gradient.flatten(2).sum(2))
        return
    assert isinstance(module, nn.Conv2d | nn.Linear)
    if isinstance(module, nn.Linear) and entering.dim() != 2:
        raise _NotByLayersError(f"the input of a linear layer is {tuple(entering.shape)}, not samples x features")
    gradient = gradient.flatten(2) if gradient.dim() > 2 else gradient[:, :, None]  # samples x outputs x positions
    if _trains(module.bias):
        sums.add_rows(gradient.sum(2))
    if not _trains(module.weight):
        return
    # Norms of groups need the products within a group, which `_add_by_position` does not form.
    if sums.group == 1 and _few_positions(sums.count_a, module.weight[0].numel(), *gradient.shape):
        _add_by_position(_taps(module, entering), gradient, sums)
    else:
        _add_one_by_one(module, entering, gradient, sums)


def _few_positions(count_a: int, size: int, samples: int, outputs: int, positions: int) -> bool:
    """Whether `_add_by_position` takes fewer multiplications than `_add_one_by_one`: many channels, few positions.

    ``size`` is the number of weights of one filter; ``samples``, ``outputs`` and ``positions`` are the shape of the
    gradient at the layer's output.
    """
    pairs = count_a * (samples - count_a)
    by_position = (pairs + samples) * positions**2 * (outputs + size) + count_a * positions * outputs * size
    return by_position < (samples * positions + pairs) * outputs * size


def _normalised(module: nn.BatchNorm2d | nn.GroupNorm, entering: Tensor) -> Tensor:
    """x̂: the input as the norm layer normalises it, before its weight and bias."""
    if isinstance(module, nn.GroupNorm):
        return F.group_norm(entering, module.num_groups, eps=module.eps)
    return F.batch_norm(entering, module.running_mean, module.running_var, eps=module.eps)


def _taps(module: nn.Conv2d | nn.Linear, entering: Tensor) -> Tensor:
    """The input value that each weight of a filter is multiplied with: samples x weights x positions."""
    if isinstance(module, nn.Linear):
        return entering[:, :, None]
    # Like `F.unfold`, but as a view of the padded input and one copy, which is several times faster on a CPU.
    assert not isinstance(module.padding, str)
    (down, across), (step_down, step_across) = module.padding, module.stride
    (tall, wide), (apart_down, apart_across) = module.kernel_size, module.dilation
    padded = F.pad(entering, (across, across, down, down)).contiguous()
    samples, channels, height, width = padded.shape
    rows = (height - apart_down * (tall - 1) - 1) // step_down + 1
    columns = (width - apart_across * (wide - 1) - 1) // step_across + 1
    of_sample, of_channel, of_row, of_column = padded.stride()
    strides = (of_row * apart_down, of_column * apart_across, of_row * step_down, of_column * step_across)
    view = padded.as_strided((samples, channels, tall, wide, rows, columns), (of_sample, of_channel, *strides))
    return view.reshape(samples, channels * tall * wide, rows * columns)


def _add_one_by_one(module: nn.Conv2d | nn.Linear, entering: Tensor, gradient: Tensor, sums: _Sums) -> None:
    """Form each sample's weight gradient D·Aᵀ, with D at the outputs and A the taps, a few channels at a time."""
    samples, outputs, positions = gradient.shape
    size = module.weight[0].numel()
    channels = max(1, _GRADIENTS // (samples * size))
    together = max(1, _TAPS // (size * positions))
    for first in range(0, outputs, channels):
        part = gradient[:, first : first + channels]
        rows = gradient.new_empty(samples, part.shape[1], size)
        for i in range(0, samples, together):
            taps = _taps(module, entering[i : i + together])
            torch.bmm(part[i : i + together], taps.transpose(1, 2), out=rows[i : i + together])
        sums.add_rows(rows.flatten(1))


def _add_by_position(taps: Tensor, gradient: Tensor, sums: _Sums) -> None:
    """Use ⟨D·Aᵀ, E·Bᵀ⟩ = Σ_{p,q} (DᵀE)_{pq}(AᵀB)_{pq} over pairs of positions, and form no weight gradient."""
    positions, count_a = gradient.shape[2], sums.count_a

    def flat(values: Tensor) -> Tensor:  # (samples · positions) x channels
        return values.transpose(1, 2).flatten(0, 1)

    # ⟨g_i, g_j⟩ of both sets: (AᵀB)∘(DᵀE) for all pairs of samples and positions, summed over positions.
    pairs = flat(taps[:count_a]) @ flat(taps[count_a:]).T
    pairs *= flat(gradient[:count_a]) @ flat(gradient[count_a:]).T
    inner = pairs.view(count_a, positions, sums.count_b, positions).sum((1, 3))
    # ‖g_i‖²: the same with E = D and B = A.
    squares = (torch.bmm(taps.transpose(1, 2), taps) * torch.bmm(gradient.transpose(1, 2), gradient)).sum((1, 2))
    # ‖Σ_i g_i‖² of the first set: its summed gradient is Σ_i D_i·A_iᵀ.
    together = flat(gradient[:count_a]).T @ flat(taps[:count_a])
    sums.add(inner, squares, together.square().sum())
