"""Names and constants of the corruptions: data only, so that listing them imports nothing heavy.

``imagenet-c`` has the constants made for 224-pixel photographs, which the paper's evaluation applied to 32x32 images;
``cifar-c`` has the milder ones made for 32x32. Both work on any image size; the comments say what scales with the side.
"""

from __future__ import annotations

from acr.errors import InputError, unknown

PAPER_CORRUPTIONS: tuple[str, ...] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "fog",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The eleven corruptions that the paper averages over."""

CORRUPTIONS: tuple[str, ...] = (*PAPER_CORRUPTIONS, "glass_blur", "frost", "brightness", "contrast")
"""All fifteen of the common-corruption benchmark, the paper's eleven first."""

SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)

Row = tuple[tuple[float, ...], ...]

IMAGENET_C: dict[str, Row] = {
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),  # standard deviation
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),  # photons at full brightness
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),  # fraction of sub-pixels
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),  # disk radius, sigma smoothing the disk
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),  # radius, sigma
    # zoom factors as numpy.arange(start, stop, step); because of rounding, the first one includes 1.11
    "zoom_blur": ((1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.02), (1, 1.26, 0.02), (1, 1.31, 0.03)),
    # mean, std and zoom of the flakes; threshold; radius and sigma of their motion blur; share of the image kept
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),  # amount, decay of the roughness
    # displacement, smoothing sigma, affine shift, all in units of the image side
    "elastic_transform": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),  # side of the small image as a fraction
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),  # quality
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),  # sigma, max shift, sweeps
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),  # weights of image and frost
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),  # added to the value of HSV
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),  # factor on the distance from the mean
}

CIFAR_C: dict[str, Row] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1, 1.06, 0.01), (1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.01), (1, 1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
}

TABLES: dict[str, dict[str, Row]] = {"imagenet-c": IMAGENET_C, "cifar-c": CIFAR_C}

CONSTANTS: tuple[str, ...] = tuple(TABLES)
"""Names of the tables of constants."""

FOG_MAP_SIDE: dict[str, int] = {"imagenet-c": 256, "cifar-c": 1}
"""Smallest side of the fog map: 256 pixels, of which the top left corner is cut out, or just enough for the image."""

FROST_SCALE: dict[str, float] = {"imagenet-c": 1.0, "cifar-c": 0.2}
"""Size of the frost pane relative to the full one: small images show frost from farther away."""


def constants_for(name: str, severity: int, constants: str = "imagenet-c") -> tuple[float, ...]:
    """The constants of a corruption at a severity; raises an error that says which argument is wrong.

    Their meaning is stated beside each row of ``IMAGENET_C``.

    >>> constants_for("motion_blur", 1, "cifar-c")
    (6, 1)
    """
    if not isinstance(constants, str) or constants not in TABLES:
        raise unknown("table of constants", str(constants), TABLES)
    if not isinstance(name, str) or name not in CORRUPTIONS:
        raise unknown("corruption", str(name), CORRUPTIONS)
    # numpy integers are accepted, 1.0 and True are not
    if isinstance(severity, bool) or not hasattr(severity, "__index__") or severity not in SEVERITIES:
        raise InputError(f"Severity must be a whole number from 1 to 5, not {severity!r}.")
    return TABLES[constants][name][int(severity) - 1]
