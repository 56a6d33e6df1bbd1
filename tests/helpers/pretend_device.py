"""A pretend accelerator: code that will run on a GPU is tried on a machine that has none.

    with PretendDevice() as device:
        network.to(device.device)
        with device.counting() as counts:
            train_one_step()
        assert counts.waits == 0, counts

A tensor on the device is a :class:`DeviceTensor`. It reads as a tensor on ``meta`` and holds a CPU tensor, and every
operation on it is computed on the CPU, so that results are those of the CPU to the last bit. The rules are CUDA's:

* Host and device tensors do not meet in one operation. Host tensors without dimensions may, and a device tensor may be
  indexed by host tensors, which are copied to the device for it.
* Nothing is drawn on the device. Draws come from CPU generators on the host and are copied over.
* Whatever makes the host wait for the device is counted, and so are copies and bytes in both directions. Each is
  attributed to the innermost line of ``src/acr`` at that moment, or to the line of the test if there is none.

What counts as a wait: reading a value (``item``, ``bool``, ``float``, ``tolist``, ``repr``), every copy to the host,
operations whose result has a size that depends on values (``nonzero``, ``unique``, masks as indices, ``masked_select``,
``repeat_interleave`` without ``output_size``), ``equal`` and ``allclose``. A copy to the host counts even with
``non_blocking=True``, since somebody has to wait before its values can be used. A copy to the device is no wait here.
CUDA does wait for one, unless it is asked for with ``non_blocking=True`` and comes from pinned memory:
``blocking_copies_in`` counts the copies that were not asked for in that way. All host memory counts as pinned.

Autograd, ``torch.func`` (``vmap``, ``grad`` and forward mode too), optimisers, modules, ``deepcopy``, ``no_grad`` and
``inference_mode`` work. In forward mode a tangent that is absent is a tensor of zeros here, so that a zero of the
result may have the other sign. What does not work:

* ``torch.autocast``: PyTorch has none for ``meta``, and that of the CPU passes over tensors that are elsewhere.
* Streams, events, ``data_ptr``, storages and pickling: a tensor on the device has no memory of its own.
* Branches on the device's name: code that asks for ``cuda`` is not reached.
* Threads: it is for one. Tensors that outlive the block can be read and printed, not computed with.
"""

from __future__ import annotations

import copy
import functools
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
HOST = torch.device("cpu")
OURS = "src/acr/"
LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<", __file__)


# What is counted


@dataclass
class Traffic:
    """What passed between host and device."""

    waits: int = 0
    copies_in: int = 0
    """Copies to the device."""
    blocking_copies_in: int = 0
    """Those of them that were not asked for with ``non_blocking=True``."""
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, other: Traffic) -> None:
        self.waits += other.waits
        self.copies_in += other.copies_in
        self.blocking_copies_in += other.blocking_copies_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


@dataclass
class Counts(Traffic):
    """Traffic in all, and of every line that caused some."""

    by_line: dict[str, Traffic] = field(default_factory=dict)

    def record(self, line: str, traffic: Traffic) -> None:
        self.add(traffic)
        self.by_line.setdefault(line, Traffic()).add(traffic)

    def __str__(self) -> str:
        rows = [("all", self), *sorted(self.by_line.items(), key=lambda row: (-row[1].waits, -row[1].copies_in))]
        table = ["waits  copies in (blocking)   bytes in  bytes out  line"]
        table += [
            f"{t.waits:5}  {t.copies_in:9} {f'({t.blocking_copies_in})':>10} {t.bytes_in:10} {t.bytes_out:10}  {line}"
            for line, t in rows
        ]
        return "\n".join(table)


def line_at_work() -> str:
    """The innermost line of ``src/acr`` that is being executed, as ``file:line``; else that of the test."""
    outside = "unknown:0"
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        path = name.replace("\\", "/")
        if OURS in path:
            return f"{path[path.rindex(OURS) :]}:{frame.f_lineno}"
        if outside == "unknown:0" and not name.startswith(LIBRARIES):
            outside = f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return outside


# Tensors


class DeviceTensor(Tensor):
    """A tensor on the device. ``held`` has its values; only the pretend device looks at it."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        tensor = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )
        tensor.held = held
        return tensor

    def __init__(self, held: Tensor) -> None:
        pass

    is_meta = False  # there are values: load_state_dict would warn of a copy to nowhere

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a tensor of a pretend device outside of its `with` block.")

    # These two let Module.to put the new tensor in the place of the old one, as it does with tensors on a GPU.

    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(parts, _context, _size, _stride):
        return DeviceTensor(parts["held"])

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only tensors that are leaves of the graph can be deep-copied.")
        if id(self) not in memo:
            copied = DeviceTensor(copy.deepcopy(self.held, memo))
            copied.__dict__ |= {name: copy.deepcopy(v, memo) for name, v in self.__dict__.items() if name != "held"}
            copied.requires_grad_(self.requires_grad)
            if self.grad is not None:
                copied.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        raise TypeError("A tensor on the pretend device cannot be pickled. Copy it to the host first.")

    def __repr__(self, *, tensor_contents=None):
        if PretendDevice.active is not None:
            PretendDevice.active.copied_out(self.held.nbytes)
        with no_dispatch():
            return f"DeviceTensor({self.held!r})"

    def __format__(self, spec):
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def tolist(self):
        return self.detach().cpu().tolist()

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(
                "can't convert a tensor on the pretend device to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy()


def is_on_device(value: Any) -> bool:
    """Whether a tensor is on the device; unlike ``isinstance`` it sees through vmap's and grad's wrappers."""
    return isinstance(value, Tensor) and value.device == DEVICE


class PretendDevice:
    """The device, and what was counted since it was made or reset. Used in a ``with`` block."""

    active: PretendDevice | None = None
    device = DEVICE
    """What code under test is given as its device."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._open: list[Counts] = []
        self._modes = ExitStack()

    def __enter__(self) -> PretendDevice:
        if PretendDevice.active is not None:
            raise RuntimeError("There is a pretend device already.")
        PretendDevice.active = self
        self._modes.enter_context(Operations(self))
        self._modes.enter_context(Functions())
        return self

    def __exit__(self, *_: object) -> None:
        self._modes.close()
        PretendDevice.active = None

    # Uncounted, for tests

    def put(self, tensor: Tensor) -> Tensor:
        """A copy on the device; not counted."""
        return DeviceTensor(tensor.detach().clone())

    def read(self, tensor: Tensor) -> Tensor:
        """A copy on the host; not counted."""
        return (tensor.held if isinstance(tensor, DeviceTensor) else tensor).detach().clone()

    # Counts

    @property
    def waits(self) -> int:
        """How often the host waited for the device."""
        return self.counts.waits

    @property
    def copies_in(self) -> int:
        """Copies to the device."""
        return self.counts.copies_in

    @property
    def blocking_copies_in(self) -> int:
        """Copies to the device that were not asked for with ``non_blocking=True``."""
        return self.counts.blocking_copies_in

    @property
    def bytes_in(self) -> int:
        """Bytes copied to the device."""
        return self.counts.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes copied to the host."""
        return self.counts.bytes_out

    @property
    def by_line(self) -> dict[str, Traffic]:
        """The same by ``file:line``."""
        return self.counts.by_line

    def reset(self) -> None:
        """Set all counts to zero; blocks of :meth:`counting` that are open keep theirs."""
        self.counts = Counts()

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count what happens inside the block, for example in one step."""
        counts = Counts()
        self._open.append(counts)
        try:
            yield counts
        finally:
            self._open = [other for other in self._open if other is not counts]

    def count(self, **traffic: int) -> None:
        """Something happened between host and device, on the line that is being executed."""
        line = line_at_work()
        for counts in (self.counts, *self._open):
            counts.record(line, Traffic(**traffic))

    def copied_in(self, size: int, non_blocking: bool = False) -> None:
        """Count a copy to the device; an empty one does not happen."""
        if size:
            self.count(copies_in=1, blocking_copies_in=int(not non_blocking), bytes_in=size)

    def copied_out(self, size: int) -> None:
        """Count a copy to the host, which waits for it."""
        if size:
            self.count(waits=1, bytes_out=size)


# Operations, as they come out of autograd, vmap and grad


WAITS_UNTAGGED = ("allclose", "_linalg_check_errors")
"""Operations whose result is read on the host, besides those that PyTorch marks so."""


class Operations(TorchDispatchMode):
    """Carries out every operation: those of the host as they are, those of the device on the tensors held."""

    def __init__(self, device: PretendDevice) -> None:
        super().__init__()
        self.device = device

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and skipping costs an import of seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("pin_memory"):  # all host memory counts as pinned
            kwargs["pin_memory"] = False
        tensors = list(tensors_in((args, kwargs)))
        if not any(type(t) is DeviceTensor for t in tensors) and DEVICE not in devices_in(args, kwargs):
            return func(*args, **kwargs)
        if is_composite(func):  # seen whole in inference mode, in parts everywhere else
            with self:
                return func.decompose(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(drawn_on_device(func, kwargs.get("generator")))
        name = func.overloadpacket.__name__
        special = getattr(self, "_do_" + name.strip("_"), None)
        if special is not None:
            return special(func, *args, **kwargs)
        if kwargs.get("device") is not None:  # a new tensor, perhaps in the shape of one that is elsewhere
            return compute(func, args, kwargs, there=kwargs["device"] == DEVICE)
        check_together(func, tensors)
        self.count_waits(func)
        return compute(func, args, kwargs)

    def count_waits(self, func) -> None:
        """The size of the result, or the result itself, has to be known on the host."""
        by_tag = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(func.tags)
        if by_tag or func.overloadpacket.__name__ in WAITS_UNTAGGED:
            self.device.count(waits=1)

    # Copies

    def _do_to_copy(self, func, source, *, device=None, pin_memory=None, non_blocking=False, **options):
        target = source.device if device is None else device
        result = func(held(source), device=HOST if target == DEVICE else target, **options)
        if source.device == target:
            return DeviceTensor(result)
        if target == DEVICE:  # a new type is made on the host, so its bytes are those that travel
            self.device.copied_in(result.nbytes, non_blocking)
            return DeviceTensor(result)
        self.device.copied_out(source.nbytes)
        return result

    def _do_copy(self, func, target, source, non_blocking=False):
        if target.device != source.device:
            if target.device == DEVICE:
                self.device.copied_in(target.nbytes, non_blocking)
            else:
                self.device.copied_out(target.numel() * source.element_size())
        return compute(func, (target, source, non_blocking), {}, there=target.device == DEVICE)

    def _do_foreach_copy(self, func, targets, sources, non_blocking=False):
        for target, source in zip(targets, sources, strict=True):
            self._do_copy(torch.ops.aten.copy_.default, target, source, non_blocking)

    def _do_local_scalar_dense(self, func, tensor):
        self.device.copied_out(tensor.nbytes)
        return func(tensor.held)

    # Operations with rules of their own

    def _do_efficientzerotensor(self, func, size, *, device, **options):
        """Forward mode's stand-in for zeros, which has no memory; here it has."""
        return DeviceTensor(torch.zeros(size, **options))

    def _do_where(self, func, condition, yes, no):
        check_together(func, [condition, yes, no])
        for tensor in (condition, yes, no):
            if tensor.device == HOST:  # without dimensions, or it would have been refused
                self.device.copied_in(tensor.nbytes)
        return compute(func, (condition, yes, no), {})

    def _do_fill(self, func, tensor, value):
        if is_on_device(value) and not is_on_device(tensor):
            self.device.copied_out(value.nbytes)
        return compute(func, (tensor, value), {}, there=is_on_device(tensor))

    def _do_masked_fill(self, func, tensor, mask, value):
        check_together(func, [t for t in (tensor, mask, value) if isinstance(t, Tensor)])
        if is_on_device(value):  # the kernel takes a number
            self.device.copied_out(value.nbytes)
        return compute(func, (tensor, mask, value), {})

    def _do_index_fill(self, func, tensor, dim, index, value):
        check_together(func, [t for t in (tensor, index, value) if isinstance(t, Tensor)])
        if is_on_device(value):
            self.device.copied_out(value.nbytes)
        return compute(func, (tensor, dim, index, value), {})

    def _do_repeat_interleave(self, func, repeats, *, output_size=None):
        if output_size is None:
            self.device.count(waits=1)
        return compute(func, (repeats,), {"output_size": output_size})

    # Indexing

    def _do_index(self, func, tensor, indices):
        self.take_indices(tensor, indices)
        return compute(func, (tensor, indices), {})

    def _do_index_put(self, func, tensor, indices, values, accumulate=False, *more):
        if accumulate or not is_masked_fill(tensor, indices, values):
            self.take_indices(tensor, indices)
            if values.device != tensor.device:
                if values.dim():
                    raise RuntimeError(not_together(func, [tensor, values]))
                if is_on_device(values):
                    self.device.copied_out(values.nbytes)
                else:
                    self.device.copied_in(values.nbytes)
        return compute(func, (tensor, indices, values, accumulate, *more), {}, there=is_on_device(tensor))

    _do_unsafe_index = _do_index
    _do_index_put_impl = _do_unsafe_index_put = _do_index_put

    def take_indices(self, tensor: Tensor, indices: list[Tensor | None]) -> None:
        """Masks become positions, where they are; then all positions go to where the indexed tensor is."""
        given = [index for index in indices if index is not None]
        if not is_on_device(tensor):
            if any(is_on_device(index) for index in given):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"({tensor.device}); found one on the pretend device."
                )
            return
        for index in given:
            is_mask = index.dtype in (torch.bool, torch.uint8)
            if is_mask and is_on_device(index):
                self.device.count(waits=1)
            elif is_mask:
                for positions in index.nonzero().unbind(1):
                    self.device.copied_in(positions.nbytes)
            elif not is_on_device(index):
                self.device.copied_in(index.nbytes)


def held(value: Any) -> Any:
    """Arguments of an operation with the tensors held in place of those on the device, and the host for the device."""
    if type(value) is DeviceTensor:
        return value.held
    if isinstance(value, (list, tuple)):
        return type(value)(held(part) for part in value)
    if isinstance(value, dict):
        return {name: held(part) for name, part in value.items()}
    return HOST if isinstance(value, torch.device) and value == DEVICE else value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors among the arguments of an operation."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def devices_in(args: tuple, kwargs: dict[str, Any]) -> list[torch.device]:
    """All devices among the arguments of an operation."""
    return [value for value in (*args, *kwargs.values()) if isinstance(value, torch.device)]


def compute(func, args: tuple, kwargs: dict[str, Any], there: bool = True) -> Any:
    """An operation on the tensors held; its results are on the device, unless they are not to be ``there``."""
    given = {id(t.held): t for t in tensors_in((args, kwargs)) if type(t) is DeviceTensor}
    results = func(*held(args), **held(kwargs))
    if writes(func):
        for tensor in given.values():
            follow_shape(tensor)
    return on_device(results, given) if there else results


def on_device(results: Any, given: dict[int, Tensor]) -> Any:
    """Results wrapped; where an argument comes back (after an operation in place), it comes back itself."""
    if isinstance(results, Tensor):
        return given[id(results)] if id(results) in given else DeviceTensor(results)
    if isinstance(results, (list, tuple)):
        return type(results)(on_device(part, given) for part in results)
    return results


def follow_shape(tensor: DeviceTensor) -> None:
    """Take over the shape and the strides of what is held, which ``resize_`` or ``transpose_`` may have changed."""
    shape, strides, offset = tensor.held.shape, tensor.held.stride(), tensor.held.storage_offset()
    if (tensor.shape, tensor.stride(), tensor.storage_offset()) != (shape, strides, offset):
        with no_dispatch():
            torch.ops.aten.set_.source_Storage_storage_offset(tensor, tensor.untyped_storage(), offset, shape, strides)


@functools.cache
def writes(func) -> bool:
    """Whether an operation writes to some of its arguments."""
    return func._schema.is_mutable


@functools.cache
def is_composite(func) -> bool:
    """Whether an operation is made of others."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


# Refusals


TAKES_SCALARS = ("fill", "masked_fill", "index_fill", "floor_divide", "rsub")
"""Operations that take a host tensor without dimensions, besides those that PyTorch marks as pointwise."""


def check_together(func, tensors: list[Tensor]) -> None:
    """Refuse host and device tensors in one operation; a host tensor without dimensions counts as a number."""
    name = func.overloadpacket.__name__
    scalars = torch.Tag.pointwise in func.tags or name.strip("_") in TAKES_SCALARS or name.startswith("_foreach")
    scalars = scalars and "out" not in func._overloadname
    strangers = [t for t in tensors if type(t) is not DeviceTensor and not (scalars and t.dim() == 0)]
    if strangers or (writes(func) and type(tensors[0]) is not DeviceTensor):  # a result on the host is no number
        raise RuntimeError(not_together(func, tensors))


def not_together(func, tensors: list[Tensor]) -> str:
    where = ", ".join(f"{tuple(t.shape)} on the {'device' if type(t) is DeviceTensor else 'host'}" for t in tensors)
    return f"Expected all tensors to be on the same device, but found at least two devices: {where} (in {func})."


def drawn_on_device(func, generator: torch.Generator | None) -> str:
    if generator is not None:
        return f"Expected a generator of the pretend device but found one of '{generator.device}' (in {func})."
    return f"Nothing may be drawn on the pretend device: draw on the host and copy (in {func})."


def is_masked_fill(tensor: Tensor, indices: list[Tensor | None], values: Tensor) -> bool:
    """Whether CUDA carries out ``tensor[mask] = number`` without looking for the positions, so without a wait."""
    given = [index for index in indices if index is not None]
    return (
        len(given) == 1
        and given[0].dtype in (torch.bool, torch.uint8)
        and given[0].device == tensor.device == DEVICE
        and values.numel() == 1
        and values.device == HOST
    )


# Functions of torch, before PyTorch takes them apart


class Functions(TorchFunctionMode):
    """Functions that PyTorch would short-cut on ``meta``, where a tensor has no values, or that need a real GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        special = FUNCTIONS.get(func)
        return func(*args, **(kwargs or {})) if special is None else special(func, *args, **(kwargs or {}))


def make(func, data, *, dtype=None, device=None, requires_grad=False, **options):
    """``torch.tensor`` and its kin: make it on the host, then copy. Device tensors in lists are read one by one."""
    data = numbers(data)
    if isinstance(data, Tensor) or device is None or torch.device(device) != DEVICE:
        made = func(data, dtype=dtype, device=device, **options)
    else:
        made = func(data, dtype=dtype, **options).to(DEVICE)
    return made.requires_grad_() if requires_grad else made


def make_like(func, tensor, data, *, dtype=None, device=None, requires_grad=False, **options):
    """``Tensor.new_tensor``."""
    data = numbers(data)
    if isinstance(data, Tensor) or (tensor.device if device is None else torch.device(device)) != DEVICE:
        return func(tensor, data, dtype=dtype, device=device, requires_grad=requires_grad, **options)
    return torch.tensor(data, dtype=dtype or tensor.dtype).to(DEVICE).requires_grad_(requires_grad)


def numbers(data: Any) -> Any:
    """Lists of device tensors as lists of numbers."""
    if isinstance(data, (list, tuple)):
        return [part.tolist() if is_on_device(part) else numbers(part) for part in data]
    return data


def get_item(func, tensor, index):
    """Lists and arrays as indices are copied to the device."""
    return func(tensor, positions_on_device(index) if is_on_device(tensor) else index)


def set_item(func, tensor, index, value):
    """The same; and a number that is assigned stays a number of the host, as it does with CUDA."""
    if is_on_device(tensor):
        index = positions_on_device(index)
        if isinstance(value, (bool, int, float, np.generic)):
            value = torch.tensor(value, dtype=tensor.dtype)
    return func(tensor, index, value)


def positions_on_device(index: Any) -> Any:
    """An index whose lists of numbers and arrays are tensors on the device."""
    if isinstance(index, tuple):
        return tuple(positions_on_device(part) for part in index)
    if isinstance(index, np.ndarray) or (isinstance(index, list) and all(isinstance(i, (bool, int)) for i in index)):
        positions = torch.as_tensor(index)
        return (positions if positions.dtype == torch.bool else positions.long()).to(DEVICE)
    return index


def set_data(func, tensor, new):
    """``tensor.data = new``: the values change with the rest."""
    if type(tensor) is DeviceTensor and type(new) is DeviceTensor:
        func(tensor, new)
        tensor.held = new.held
        return None
    return func(tensor, new)


def pin_memory(func, tensor, *_, **__):
    """All host memory counts as pinned."""
    if is_on_device(tensor):
        raise RuntimeError("cannot pin a tensor on the device, only dense CPU tensors can be pinned")
    return tensor


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.tensor: make,
    torch.as_tensor: make,
    torch.asarray: make,
    Tensor.new_tensor: make_like,
    Tensor.__getitem__: get_item,
    Tensor.__setitem__: set_item,
    Tensor.data.__set__: set_data,
    Tensor.pin_memory: pin_memory,
}
