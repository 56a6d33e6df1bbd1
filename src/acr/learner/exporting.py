"""A classifier as one file that other programs run: ONNX, or a program of ``torch.export``.

Both take uint8 images, N x C x S x S with any N, and return probabilities, N x K. Normalisation is inside, and the
names of the classes are written into the file. What was made is run and compared with the classifier before any of it
reaches the disk.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from acr.errors import AcrError, InputError
from acr.learner.knowledge import Knowledge
from acr.learner.labels import to_json
from acr.networks import Network
from acr.randomness import generator
from acr.storage import files

if TYPE_CHECKING:
    from acr.learner.classifier import ContinualClassifier

TOLERANCE = 1e-4
"""Largest difference between a probability of the file and one of the classifier."""
COMPARED = 100
"""Most images on which they are compared."""
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TESTED = "PyTorch 2.13, onnx 1.23, onnxscript 0.7, onnxruntime 1.31"
"""Versions that work together. With PyTorch 2.6 no version of onnxscript that was tried did."""
OPSET = 18
"""Version of ONNX's operators: runtimes since 2023 have them."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
INPUT, OUTPUT = "images", "probabilities"

Images = npt.NDArray[np.uint8]
Answer = Callable[[Images], npt.NDArray[np.float32]]
"""What a file does: from images to probabilities."""


@dataclass(frozen=True)
class Made:
    """A file that is not on the disk yet."""

    content: bytes
    answer: Answer
    """Runs the content, as another program would."""


def export(classifier: ContinualClassifier, path: Path, *, overwrite: bool = False) -> Path:
    """Write a classifier for other programs; arguments as for :meth:`acr.ContinualClassifier.export`."""
    known = classifier._needed()
    make = _maker(path)
    _check_target(path, overwrite)
    facts = _facts(known)
    images = _images(known)
    with classifier._settings(known, known.config), known.method.answering():
        predictor = known.method.predictor()
        expected = _expected(known, predictor, images)
    try:
        made = make(_Probabilities(_portable(predictor)), facts)
        # One image alone, too: its shape is the one that goes wrong where the number of images was taken as fixed.
        difference = max(
            float(np.abs(made.answer(images[:count]) - expected[:count]).max()) for count in (1, len(images))
        )
    except Exception as error:  # the exporters raise errors of many kinds, for whatever an encoder may contain
        raise AcrError(_failed(path, error)) from error
    if not difference <= TOLERANCE:
        raise AcrError(
            f"The exported program answers differently from the classifier: probabilities differ by up to "
            f"{difference:.2g}, more than {TOLERANCE:g}. Nothing was written."
        )
    try:
        files.write_bytes(path, made.content)
    except OSError as error:
        raise AcrError(f"Cannot write {path}: {error.strerror or error}.") from error
    return path


def _failed(path: Path, error: Exception) -> str:
    """Why there is no file, for people."""
    lines = COLOURS.sub("", str(error)).strip().splitlines() or [""]
    older = f" Tested versions: {TESTED}. A .pt2 file needs only PyTorch." if path.suffix.lower() == ".onnx" else ""
    return (
        f"This classifier cannot be exported to {path.suffix} ({type(error).__name__}: {lines[0][:200]}). Nothing was "
        f"written.{older}"
    )


def _maker(path: Path) -> Callable[[nn.Module, Mapping[str, str]], Made]:
    """What makes a file of this kind."""
    makers = {".onnx": _onnx, ".pt2": _torch_program}
    if path.suffix.lower() not in makers:
        raise InputError(
            f"Cannot export to {path}: the name must end in .onnx (ONNX) or .pt2 (a program of torch.export)."
        )
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if path.suffix.lower() == ".onnx" and missing:
        raise InputError(
            f"Exporting to ONNX needs packages that are not installed: pip install {' '.join(missing)} "
            "(a .pt2 file needs none)"
        )
    return makers[path.suffix.lower()]


def _check_target(path: Path, overwrite: bool) -> None:
    """Refuse to replace a file that nobody said may be replaced."""
    if path.is_dir():
        raise InputError(f"Cannot export to {path}: it is a folder.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already. Choose another name, or allow it to be replaced (overwrite).")


def _facts(known: Knowledge) -> dict[str, str]:
    """What a program that uses the file must know, by name, as text."""
    channels, size, _ = known.pictures.image_shape
    colour = "RGB" if channels == 3 else "grey"
    return {
        "classes": json.dumps([str(label) for label in known.labels.values]),
        "labels": json.dumps([to_json(label) for label in known.labels.values]),
        "image_size": str(size),
        "channels": str(channels),
        "input": f"{INPUT}: uint8, N x {channels} x {size} x {size}, {colour}, not normalised",
        "output": f"{OUTPUT}: float32, N x {len(known.labels)}, in the order of classes",
    }


def _images(known: Knowledge) -> Images:
    """Images to compare on: those of the memory; random ones if there are none."""
    stored = known.memory_view().images
    if len(stored):
        return stored[np.unique(np.linspace(0, len(stored) - 1, COMPARED).astype(int))]
    draws = generator(known.config.seed, "export")
    return torch.randint(0, 256, (COMPARED, *known.pictures.image_shape), generator=draws, dtype=torch.uint8).numpy()


@torch.inference_mode()
def _expected(known: Knowledge, predictor: nn.Module, images: Images) -> npt.NDArray[np.float32]:
    """The classifier's own probabilities; computed in 32 bits, as the file's, also where it trains in fewer."""
    method = known.method
    with _in_32_bits(predictor):
        return method.logits(torch.from_numpy(images).to(method.context.device)).softmax(1).cpu().numpy()


@contextlib.contextmanager
def _in_32_bits(predictor: nn.Module) -> Iterator[None]:
    """Let the networks of a predictor compute without mixed precision."""
    before = [(module, module.autocast) for module in predictor.modules() if isinstance(module, Network)]
    try:
        for network, _ in before:
            network.autocast = None
        yield
    finally:
        for network, autocast in before:
            network.autocast = autocast


def _portable(predictor: nn.Module) -> nn.Module:
    """A copy on the CPU, in 32 bits and in the usual memory layout."""
    copied = copy.deepcopy(predictor).to("cpu", torch.float32).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for module in copied.modules():
        if isinstance(module, Network):
            module.layout, module.autocast = torch.contiguous_format, None
    return copied.requires_grad_(False).eval()


class _Probabilities(nn.Module):
    """From images to probabilities."""

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, images: Tensor) -> Tensor:
        return self.predictor(images).softmax(1)


def _example(facts: Mapping[str, str]) -> tuple[tuple[Tensor], dict[str, Any]]:
    """Two black images to trace a module with, and the statement that there may be any number of them."""
    size = int(facts["image_size"])
    images = torch.zeros(2, int(facts["channels"]), size, size, dtype=torch.uint8)
    return (images,), {INPUT: {0: torch.export.Dim("batch", min=1)}}


def _torch_program(module: nn.Module, facts: Mapping[str, str]) -> Made:
    """The module as a program of ``torch.export``; ``torch.export.load`` needs nothing of this package."""
    example, dynamic = _example(facts)
    with _silence():
        program = torch.export.export(module, example, dynamic_shapes=dynamic)
        for node in program.graph.nodes:
            # Lines of source code with the paths of this machine; no business of whoever gets the file.
            node.meta.pop("stack_trace", None)
        stream = io.BytesIO()
        torch.export.save(program, stream, extra_files={"classes.json": json.dumps(dict(facts))})
        loaded = torch.export.load(io.BytesIO(stream.getvalue())).module()

    @torch.inference_mode()
    def answer(images: Images) -> npt.NDArray[np.float32]:
        return loaded(torch.from_numpy(images)).numpy()

    return Made(stream.getvalue(), answer)


def _onnx(module: nn.Module, facts: Mapping[str, str]) -> Made:
    """The module as an ONNX model; the facts are its metadata."""
    onnxruntime: Any = import_module("onnxruntime")
    example, dynamic = _example(facts)
    with _silence():
        program: Any = torch.onnx.export(
            module,
            example,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=[INPUT],
            output_names=[OUTPUT],
            opset_version=OPSET,
            verbose=False,
        )
    model = program.model_proto
    for node in model.graph.node:
        node.ClearField("metadata_props")  # source code and paths, as above
    for name, value in facts.items():
        model.metadata_props.add(key=name, value=value)
    content: bytes = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return Made(content, lambda images: session.run([OUTPUT], {INPUT: images})[0])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep warnings, log lines and prints of the exporters, which are for their authors, from the user's screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
