"""CPU time of the eleven-corruption suite, compared with the usual pipeline, which corrupts one image at a time.

    python benchmarks/shift.py [--images 256] [--usual 24] [--repeats 5]

Both sides run on one thread of this process and alternate; the best of several repeats counts, and the table shows
microseconds of CPU time per image. The usual side is what the scripts of the published benchmarks do for each image
with numpy, scipy, scikit-image, OpenCV and Pillow (the test-only package ``imagecorruptions``, and plain code where
that package differs from the paper's evaluation). Goal: all eleven together in at most a tenth of the usual time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import cv2
import numpy as np
import torch
from imagecorruptions import corruptions as usual_package
from PIL import Image
from scipy.ndimage import map_coordinates, zoom
from skimage.filters import gaussian
from threadpoolctl import threadpool_limits

from acr.shift import PAPER_CORRUPTIONS, corrupt


def centre_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    side = image.shape[0]
    inner = int(np.ceil(side / factor))
    start = (side - inner) // 2
    large = zoom(image[start : start + inner, start : start + inner], (factor, factor, 1), order=1)
    trim = (large.shape[0] - side) // 2
    return large[trim : trim + side, trim : trim + side]


def usual_zoom_blur(picture: Image.Image) -> np.ndarray:
    x = (np.array(picture) / 255.0).astype(np.float32)
    factors = np.arange(1, 1.11, 0.01)
    total = np.zeros_like(x)
    for factor in factors:
        total += centre_zoom(x, factor)
    return np.clip((x + total) / (len(factors) + 1), 0, 1) * 255


def usual_fog(picture: Image.Image) -> np.ndarray:
    x = np.array(picture) / 255.0
    brightest = x.max()
    cloud = usual_package.plasma_fractal(mapsize=256, wibbledecay=2)[: x.shape[0], : x.shape[1], None]
    return np.clip((x + 1.5 * cloud) * brightest / (brightest + 1.5), 0, 1) * 255


def usual_snow(picture: Image.Image) -> np.ndarray:
    x = np.array(picture, dtype=np.float32) / 255.0
    layer = centre_zoom(np.random.normal(size=x.shape[:2], loc=0.1, scale=0.3)[..., None], 3)[..., 0]
    layer[layer < 0.5] = 0
    layer = (np.clip(layer, 0, 1) * 255).astype(np.uint8)
    layer = usual_package._motion_blur(layer, radius=10, sigma=4, angle=np.random.uniform(-135, -45))[..., None] / 255
    pale = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None] * 1.5 + 0.5
    x = 0.8 * x + 0.2 * np.maximum(x, pale)
    return np.clip(x + layer + np.rot90(layer, k=2), 0, 1) * 255


def usual_elastic_transform(picture: Image.Image) -> np.ndarray:
    x = np.array(picture, dtype=np.float32) / 255.0
    side = x.shape[0]
    centre, reach = np.float32(x.shape[:2]) // 2, side // 3
    points = np.float32([centre + reach, [centre[0] + reach, centre[1] - reach], centre - reach])
    moved = points + np.random.uniform(-side * 0.1, side * 0.1, size=points.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    x = cv2.warpAffine(x, matrix, x.shape[1::-1], borderMode=cv2.BORDER_REFLECT_101)
    dx, dy = (
        gaussian(np.random.uniform(-1, 1, size=x.shape[:2]), side * 0.7, mode="reflect", truncate=3) * side * 2
        for _ in range(2)
    )
    rows, columns, planes = np.meshgrid(np.arange(side), np.arange(side), np.arange(3), indexing="ij")
    where = (rows + dy[..., None]).ravel(), (columns + dx[..., None]).ravel(), planes.ravel()
    return np.clip(map_coordinates(x, where, order=1, mode="reflect").reshape(x.shape), 0, 1) * 255


USUAL: dict[str, Callable[[Image.Image], object]] = {
    name: getattr(usual_package, name) for name in PAPER_CORRUPTIONS
} | {
    "zoom_blur": usual_zoom_blur,
    "fog": usual_fog,
    "snow": usual_snow,
    "elastic_transform": usual_elastic_transform,
}


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def photographs(count: int) -> np.ndarray:
    """Smooth random pictures, 32x32: JPEG and the blurs cost about what they cost on photographs."""
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((count, 3, 9, 9), dtype=np.float32))
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").numpy()
    return ((smooth + rng.normal(0, 0.03, smooth.shape)).clip(0, 1) * 255).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256, help="images on our side")
    parser.add_argument("--usual", type=int, default=24, help="images on the usual side, which is slower")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    threadpool_limits(1)
    images = photographs(options.images)
    pictures = [Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in images[: options.usual]]

    totals = np.zeros(2)
    print(f"{'µs of CPU time per image':24s}{'acr':>9s}{'usual':>9s}{'ratio':>8s}")
    for name in PAPER_CORRUPTIONS:
        corrupt(images[:1], name)  # tables are built once
        USUAL[name](pictures[0])
        best = np.full(2, np.inf)
        for _ in range(options.repeats):
            ours = seconds(lambda: corrupt(images, name)) / len(images)  # noqa: B023
            usual = seconds(lambda: [np.array(USUAL[name](picture)) for picture in pictures]) / len(pictures)  # noqa: B023
            best = np.minimum(best, [ours, usual])
        totals += best
        print(f"{name:24s}{best[0] * 1e6:9.0f}{best[1] * 1e6:9.0f}{best[0] / best[1]:8.3f}")
    print(f"{'all eleven':24s}{totals[0] * 1e6:9.0f}{totals[1] * 1e6:9.0f}{totals[0] / totals[1]:8.3f}   goal 0.1")


if __name__ == "__main__":
    main()
