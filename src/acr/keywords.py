"""The keywords of :func:`acr.run`, so that editors complete them and type checkers find a misspelt one.

Written by ``python tests/helpers/keywords.py`` from the fields of :class:`acr.config.RunConfig` and the options of this
package's methods. Options of other packages' methods are given as ``acr.run(..., options={"name": value})``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict


class RunKeywords(TypedDict, total=False):
    """What ``acr.run`` takes by keyword."""

    samples_per_class: int | None
    """Train on at most this many images per class, drawn with --data-seed; by default on all."""
    test_samples_per_class: int | None
    """Test on at most this many images per class; by default on all."""
    validation_fraction: float
    """Hold out this fraction of the training images and evaluate on them instead of the test set."""
    data_seed: int
    """Seed that chooses images for --samples-per-class and --validation-fraction; independent of --seed."""
    image_size: int | None
    """Side of the images in pixels, 8 to 1024; by default the data set's own."""
    skip_broken: bool
    """Leave out unreadable files instead of stopping with an error."""
    data_root: str | Path | None
    """Folder that holds data sets; searched before the folder named by ACR_DATA and before the cache."""
    data_cache: str | Path | None
    """Folder for decoded images; by default the one named by ACR_CACHE, or else the user's cache folder."""
    quiet: bool
    """Show no progress."""
    seed: int
    """Seed of everything random in the run."""
    buffer_size: int
    """Number of places in the replay memory, each as large as an image."""
    images_per_place: Literal["auto"] | int
    """Images that share a place of the memory, up to 16, or auto: 8 colour images of 32 pixels and more, and 1 of
    any other kind. If several do, they are stored compressed, and all images are learned as compression leaves
    them.
    """
    epochs: int
    """Epochs per task."""
    batch_size: int
    """Samples of the current task per training step."""
    replay_size: int
    """Samples from the memory per training step."""
    learning_rate: float
    """Learning rate of SGD."""
    momentum: float
    """Momentum of SGD."""
    weight_decay: float
    """Weight decay of SGD."""
    lr_milestones: Sequence[int] | str | int
    """Epochs of each task at which the learning rate is multiplied by --lr-decay, such as 35,45."""
    lr_decay: float
    """Factor by which the learning rate is multiplied at each milestone."""
    network: str | Callable[..., object]
    """Encoder: resnet18, or your function that makes one, as MODULE:FUNCTION or FILE.py:FUNCTION; its code is run."""
    width: int
    """Channels of the encoder's first stage; the paper uses 64."""
    stem: Literal["cifar", "imagenet"]
    """First layers of resnet18: a 3x3 convolution (cifar), or a strided 7x7 one and a max pool (imagenet)."""
    weights: str | Path | None
    """File (safetensors) with weights of the encoder to start from; the head starts anew."""
    weights_digest: str | None
    """Checksum of the --weights file; recorded with the run, which accepts no other file afterwards."""
    average_weights: str
    """Answer with the mean of the weights over the steps, where a step counts half as much after this many later
    ones: 300, or 0.2t, a share of a task's steps, or auto, a share that grows with the number of tasks. The network
    as trained is evaluated too.
    """
    protocol: Literal["sound", "published"]
    """`published` restores the quirks of the paper's released program; docs/protocols.md describes them."""
    quirk: Sequence[str] | str
    """Individual quirks of the published protocol to switch on."""
    no_quirk: Sequence[str] | str
    """Individual quirks of the published protocol to switch off."""
    tasks: int | None
    """Number of tasks, all of equal size."""
    classes_per_task: Sequence[int] | str | int | None
    """Classes per task: one number for all tasks, or one for each task, such as 4,3,3; by default as --tasks says."""
    class_order: str | Sequence[int] | int
    """Order in which classes arrive: file (ascending labels), random:SEED, or a list of labels, such as 5,0-3."""
    ood_every: Literal["stage", "end", "never"]
    """When to evaluate under shift: after every task (stage), after the last task only (end), or never."""
    ood_corruptions: Sequence[str] | str | None
    """Corruptions of the test images, such as fog,snow; by default the data set's (usually the paper's eleven)."""
    ood_severities: Sequence[int] | str | int
    """Severities of the corruptions, from 1 to 5, such as 1,3 or 1-5."""
    ood_constants: Literal["imagenet-c", "cifar-c"]
    """Table of constants that defines how strong each severity is."""
    device: str
    """Device to train on: auto, cpu, cuda, cuda:1 or mps."""
    data_device: Literal["auto", "host", "device"]
    """Where images are kept on an accelerator: on the device, on the host, or on the device if they fit (auto)."""
    precision: Literal["32", "bf16-mixed", "16-mixed"]
    """Arithmetic of the network: 32 bits, or mixed with 16 (bf16-mixed, 16-mixed), which is faster on recent GPUs."""
    tf32: bool
    """Let a GPU round the inputs of 32-bit products to 19 bits (TensorFloat-32): faster, less exact."""
    compile: bool
    """Compile the network with torch.compile: a slow start, then faster steps on a GPU."""
    threads: int | None
    """CPU threads; by default one or all cores, whichever a short measurement finds faster."""
    deterministic: bool | None
    """Bit-identical results, by default on a CPU only; on a GPU, this selects slower, deterministic algorithms."""
    checkpoint_every: float | str
    """Time between checkpoints, in seconds or such as 90s, 5m or 1h; one is also written at the end of every task."""
    keep: int
    """Number of checkpoints to keep."""
    eval_every: int | None
    """Epochs between extra evaluations for the screen and events.jsonl, by default none. Results never depend on it."""
    log_every: int
    """Number of steps between log lines in events.jsonl."""
    tensorboard: bool
    """Also write losses, accuracies and resource use for TensorBoard, into the run's folder."""
    wandb: Literal["off", "online", "offline"]
    """Also log to Weights & Biases; `offline` keeps the log in the run's folder."""
    policy: Literal["reservoir", "balanced-random", "hard", "easy", "challenging"]
    """Which samples the memory keeps. (acr)"""
    confidence_epochs: int | None
    """Number of epochs at the start of a task that record confidence (the paper's E); 5, or all epochs if fewer.
    (acr)
    """
    temperature: float
    """Temperature τ of the loss and of the scores. (acr)"""
    denominator: Literal["counted", "set"]
    """Whether a class counts in the loss as often as it occurs in the batch, or once. (acr)"""
    passes: Literal["joint", "separate"] | None
    """Whether current and memory images pass through the network together, or one after the other; together by
    default, and separately under the quirk separate-passes. (acr)
    """
    confidence_from: Literal["plain-view", "training-view"]
    """Take confidence from an extra pass over the plain images, or from the training pass over the first view. (acr)"""
    first_view: Literal["crop-flip", "plain"]
    """First view of a current image. (acr)"""
    second_view: Literal["none", "crop-flip", "strong"]
    """Second view of every image: resized crop with colour jitter, crop (and flip), or none. (acr)"""
    variant: Literal["paper-text", "released"] | None
    """Preset of the five options on which the paper's text and its released program differ; each can still be
    given. (acr)
    """
    margin: float
    """Smallest weight of every earlier task's gradient in a corrected step (γ); above 0 it favours the old tasks.
    (gem)
    """
    ridge: float
    """Added to the diagonal of the quadratic program's matrix. (gem)"""
    references: int
    """Number of gradients of the memory that new ones are compared with; fewer while the memory is small. (gss)"""
    reference_size: int
    """Stored samples per reference; the original compares with gradients of batches of 10. (gss)"""
    gate: Literal["batch", "sample"]
    """What must point away from all references to contend for a slot: the batch as a whole, or each sample itself.
    (gss)
    """
    sampler: Literal["greedy", "reservoir"]
    """Which samples the memory keeps: equally many of each class, or a reservoir sample. (gdumb)"""
    fit: Literal["every", "final"]
    """Fit a network to the memory after every task, or after the final one only. (gdumb)"""
    fit_epochs: int
    """Epochs of a fit, whatever the epochs of a task; fewer are said beside the numbers in reports. (gdumb)"""
    fit_learning_rate: float
    """Highest learning rate in a fit. (gdumb)"""
    fit_min_learning_rate: float
    """Lowest learning rate in a fit. (gdumb)"""
    cutmix: float
    """Probability of CutMix on each batch of a fit. (gdumb)"""
    anchor_weight: float
    """Weight of the anchor term in the loss (λ). (hal)"""
    mean_decay: float
    """How slowly the mean embedding of a task follows its batches (β). (hal)"""
    embedding_weight: float
    """Weight that keeps an anchor near the mean embedding of its task (γ). (hal)"""
    anchor_steps: int
    """Number of gradient steps that make an anchor. (hal)"""
    replay_epochs: int | None
    """Number of epochs with replay at the end of a task; by default a tenth of all, at least 1 (the paper: 5 of
    50). (metasp)
    """
    validation_share: float
    """Size of each validation set as a share of the memory. (metasp)"""
    mu: float
    """Weight of the curvature in the second-order term (μ). (soif)"""
    nu: float
    """Weight of the second-order term (ν). (soif)"""
    weighting: Literal["released", "share", "equal", "batch-share"]
    """Which samples the fit weights less: the last stored (b/N), the new (B/N; b/N with batch-share), or none.
    (soif)
    """
    alpha: float
    """Weight of the distance from the stored logits (α). (derpp)"""
    beta: float
    """Weight of the replayed cross-entropy (β). (derpp)"""
    consistency_weight: float
    """Weight of the distance from the copies' logits (λ). (cls-er)"""
    plastic_frequency: float
    """Probability that a step renews the plastic copy (r_P). (cls-er)"""
    stable_frequency: float
    """Probability that a step renews the stable copy (r_S). (cls-er)"""
    plastic_decay: float | None
    """How much of the plastic copy a renewal keeps (α_P); 0.999 for 50 epochs per task, in proportion for others.
    (cls-er)
    """
    stable_decay: float | None
    """How much of the stable copy a renewal keeps (α_S); 0.999 for 50 epochs per task, in proportion for others.
    (cls-er)
    """
    projection_size: int
    """Number of outputs of the projection. (scr)"""
