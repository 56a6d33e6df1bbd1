"""Second-Order Influence Functions for sample selection (SOIF).

Trains like ER. In the last epoch of each task every batch is offered to the memory. A kernel machine is fitted to the
stored and the new samples together, and the samples are deleted whose removal raises its loss least, to first order; a
second term accounts for the effect of a deletion on later selections. Sun, Mu and Hua, "Regularizing Second-Order
Influences for Continual Learning", CVPR 2023. The formulas are in ``acr.methods.maths.selection`` and
``acr.methods.maths.ntk``.

The kernel is the infinite-width tangent kernel of a residual network, on plain normalised images. The part for stored
samples is kept from one selection to the next, so that only rows of new samples are computed. In the kernel machine's
fit the last b stored samples are weighted by b/N, batch size over samples seen, as in the program that produced the
published numbers. That program's own comment says that the weight is for the new samples; there it keeps every later
task out of the memory. ``weighting`` chooses.

Measure it: ``acr run --method soif --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions
from acr.methods.bases import MemoryMethod
from acr.methods.maths.ntk import KernelCache
from acr.methods.maths.selection import Weighting, select_rows
from acr.methods.method import Batch, Context
from acr.networks import Network


class SOIFOptions(MethodOptions):
    """Options of SOIF."""

    revision: ClassVar[int] = 2
    """1: the weighting was a quirk of the protocol."""
    sources: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("mu", "nu", "ridge"), "the launcher of the paper's released program"),
        "weighting": "the released program, and measured: docs/methods/soif.md",
    }
    mu: float = Field(0.5, ge=0)
    """Weight of the curvature in the second-order term (μ)."""
    nu: float = Field(0.01, ge=0)
    """Weight of the second-order term (ν)."""
    ridge: float = Field(1e-3, gt=0)
    """Regularisation of the kernel machine (λ)."""
    weighting: Weighting = "released"
    """Which samples the fit weights less: the last stored (b/N), the new (B/N; b/N with batch-share), or none."""


class SOIF(MemoryMethod):
    """Experience replay from a memory chosen by influence."""

    name = "soif"
    label = "SOIF"
    summary = "SOIF: replay from a memory chosen by second-order influence"
    Options: ClassVar[type[MethodOptions]] = SOIFOptions
    options: SOIFOptions
    uses_last_epochs = True  # it stores samples in the last one only

    def __init__(self, network: Network, options: SOIFOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.kernel = KernelCache()

    def observe(self, batch: Batch) -> Tensor:
        """One step as in ER; in the last epoch of a task the batch is also offered to the memory. Returns the loss."""
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.step(loss)
        if batch.epoch == self.context.epochs - 1:
            self.remember(batch)
        return loss.detach()

    def remember(self, batch: Batch) -> None:
        """Fill the slots in order until B samples have been seen, then select B of the B + b stored and new samples."""
        buffer = self.buffer
        if len(buffer) < buffer.capacity:
            # Slot = count mod B: the batch that fills the memory wraps around to slot 0. If a batch is larger than the
            # memory, only its last B samples would remain, so the others are skipped.
            last = slice(max(0, len(batch) - buffer.capacity), None)
            slots = (len(buffer) + torch.arange(len(batch))[last]) % buffer.capacity
            order = slots.argsort()
            buffer.write(slots[order], batch.plain[last][order], batch.labels_on_host[last][order], batch.task)
            self.kernel.forget()
        else:
            self.select(batch)
        buffer.seen += len(batch)

    @torch.no_grad()
    def select(self, batch: Batch) -> None:
        """Replace the stored samples that the selection deletes by the new ones that it keeps."""
        buffer, labels = self.buffer, batch.labels_on_host
        # The kernel machine has one output per class seen: `place` maps an output column to its number among those.
        place = torch.zeros(self.network.num_classes, dtype=torch.int64)
        place[self.context.seen] = torch.arange(len(self.context.seen))
        # K over n = b + B rows: the new batch first, then the stored samples.
        kernel = self.kernel.joint(self.pixels(batch.plain), self.pixels(buffer.images))
        # Delete b rows one by one, each time the one with the largest I_i + ν I²_i.
        chosen = select_rows(
            kernel,
            place[torch.cat([labels, buffer.labels])],
            stored_count=len(buffer),
            batch=len(batch),
            seen=buffer.seen,
            num_classes=len(self.context.seen),
            generator=self.context.generator("soif"),
            mu=self.options.mu,
            nu=self.options.nu,
            ridge=self.options.ridge,
            weighting=self.options.weighting,
        )
        # New samples that survive overwrite the slots of deleted stored samples, in order.
        self.kernel.keep(chosen.rows)
        buffer.write(chosen.slots, batch.plain[chosen.new_rows], labels[chosen.new_rows], batch.task)

    def pixels(self, images: Tensor) -> Tensor:
        """Images as the kernel compares them: normalised floats."""
        return self.network.normalise(images)

    def keep_in_memory(self, slots: Tensor) -> None:
        """As in the base class; the kernel, which has a row for every stored sample, is computed again when needed."""
        super().keep_in_memory(slots)
        self.kernel.forget()

    def side_memory_bytes(self) -> int:
        """Bytes of the kernel of the stored samples."""
        stored = self.kernel.stored
        return 0 if stored is None else stored.numel() * stored.element_size()

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with the kernel: if computed again, it could differ in its last bits."""
        return {**super().state_dict(), "kernel": self.kernel.stored}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.kernel.forget()
        if state["kernel"] is not None:
            self.kernel.stored = state["kernel"].cpu()
