"""Files as an attacker, a bad disk or a careless program makes them, and what becomes of those who read them.

Each function below runs in a process of its own (``child_command``), whose memory is limited and measured.
"""

import io
import json
import pickle
import random
import resource
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 16
ROOM = 3 << 30
"""Address space that a reader may use: enough for the largest image that is read."""


def originals():
    """One file of every format and mode that people bring, by ending."""
    colours = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    picture = Image.fromarray(colours)
    frames = [picture, picture.transpose(Image.Transpose.ROTATE_180)]
    turned = Image.Exif()
    turned[0x0112] = 6
    rows = [(ending, mode, {}) for ending, modes in {
        "png": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"), "jpg": ("RGB", "L", "CMYK"), "bmp": ("RGB", "L", "P", "1"),
        "gif": ("P", "L"), "tif": ("RGB", "L", "CMYK", "RGBA", "I;16", "F", "1"), "webp": ("RGB", "RGBA"),
        "ppm": ("RGB", "L", "1"),
    }.items() for mode in modes]  # fmt: skip
    rows += [(ending, "RGB", {"save_all": True, "append_images": frames[1:]}) for ending in ("png", "gif", "webp")]
    rows += [(ending, "RGB", {"exif": turned}) for ending in ("jpg", "png", "webp")]
    rows += [("tif", "RGB", {"compression": name}) for name in ("tiff_lzw", "tiff_deflate", "jpeg")]
    for ending, mode, options in rows:
        if mode == "I;16":
            image = Image.fromarray(colours[..., 0].astype(np.uint16) * 257)
        elif mode == "F":
            image = Image.fromarray(colours[..., 0].astype(np.float32))
        else:
            image = picture.convert(mode)
        buffer = io.BytesIO()
        kind = {"jpg": "JPEG", "tif": "TIFF"}.get(ending, ending.upper())
        image.save(buffer, kind, **options)
        yield ending, buffer.getvalue()


def png(width, height, rows=b"", depth=8, colour=2):
    """A PNG that claims a size, whatever it holds; its checksums are right."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def bombs():
    """Small files that ask for much."""
    yield "png", png(1, 2_000_000, b"\0\0" * 2_000_000, colour=0)
    yield "png", png(2_000_000, 1, b"\0" * 2_000_001, colour=0)
    yield "png", png(65_000, 65_000)
    yield "png", png(9_000, 9_000, b"\0" * 9_001 * 9_000, colour=0)
    yield "png", png(2**31 - 1, 2**31 - 1)
    yield "png", png(0, 0)
    yield (
        "gif",
        b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + b"\x80\0\0" + b"\0" * 6 + b",\0\0\0\0\xff\xff\xff\xff\0\x02",
    )
    yield "bmp", b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    yield "ppm", b"P6 100000 100000 255\n"
    yield "ppm", b"P6 " + b"9" * 5_000 + b" 1 255\n"
    yield "webp", b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0" + b"\xff\x3f\0" * 2 + b"ANIM\x06\0\0\0" + b"\0" * 6
    yield (
        "tif",
        b"II*\0\x08\0\0\0\x02\0" + struct.pack("<HHII", 256, 4, 1, 90_000) + struct.pack("<HHII", 257, 4, 1, 90_000),
    )
    yield "jpg", b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01\xff\xda"
    yield "png", b""
    yield "jpg", b"\xff\xd8"
    yield "png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%true) (w) file\n"


def mutated(content, draw):
    """A file with some of its bytes changed, most often near its beginning, or a part of it missing or repeated."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if not data:
            break
        place = draw.randrange(min(len(data), draw.choice((16, 64, len(data)))))
        kind = draw.randrange(6)
        if kind == 0:
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[place : place + 4] = draw.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            del data[place : place + draw.randrange(1, 20)]
        elif kind == 4:
            data[place:place] = data[place : place + draw.randrange(1, 40)]
        else:
            data[place : place + 2] = draw.randbytes(2)
    return bytes(data)


def limit_memory():
    """Room for ``ROOM`` bytes more than this process has now: a reader that wants more gets a MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def images():
    """Read hostile image files as a data set does; ``sys.argv``: how many mutated ones."""
    from acr.data.readers.decoding import decode_files
    from acr.data.readers.file_tree import FolderTree
    from acr.storage.cache import Writer

    draw = random.Random(1)
    known = list(originals())
    files = [*known, *bombs()]
    files += [(ending, mutated(data, draw)) for ending, data in draw.choices(known, k=int(sys.argv[1]))]
    wrong = [(draw.choice(known)[0], data) for _, data in known]  # another ending than the format's
    files += wrong
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number}.{ending}" for number, (ending, _) in enumerate(files)]
        for name, (_, data) in zip(names, files, strict=True):
            Path(folder, name).write_bytes(data)
        writer = Writer(Path(folder))
        writer.create("out", (len(names), 3, SIZE, SIZE), np.uint8)
        before = peak_mib()
        limit_memory()
        broken = decode_files(
            FolderTree(Path(folder), listed=False), names, writer.path("out"), SIZE, quiet=True, workers=1
        )
    read = [row not in broken for row in range(len(files))]
    first_mutant = len(known) + len(list(bombs()))
    reasons = Counter(broken.values())
    print(json.dumps({"tried": len(files), "broken": len(broken), "originals": len(known),
                      "originals_read": sum(read[: len(known)]), "bombs_read": sum(read[len(known) : first_mutant]),
                      "growth_mib": peak_mib() - before, "reasons": reasons}))  # fmt: skip


def containers():
    """Read hostile arrays, pickles and archives; ``sys.argv``: how many of each."""
    from acr.data.readers import pickles
    from acr.data.readers.archives import read_members
    from acr.data.readers.file_tree import open_tree
    from acr.data.sources.arrays import read_array
    from acr.errors import InputError

    draw = random.Random(2)
    count = int(sys.argv[1])
    outcomes = Counter()
    limit_memory()
    before = peak_mib()

    def attempt(kind, read):
        try:
            read()
            outcomes[f"{kind} read"] += 1
        except InputError:
            outcomes[f"{kind} refused"] += 1

    batch = {b"data": np.zeros((20, 3072), np.uint8), b"fine_labels": list(range(20)), b"filenames": [b"a.png"] * 20}
    packed = [pickle.dumps(batch, protocol) for protocol in (0, 1, 2, 3, 4, 5)]
    for _ in range(count):
        data = mutated(draw.choice(packed), draw)
        attempt("pickle", lambda data=data: pickles.load(data, "a pickle"))
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder, "a.npz")
        for _ in range(count):
            with zipfile.ZipFile(arrays, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
                buffer = io.BytesIO()
                np.save(buffer, np.zeros((4, 8, 8), draw.choice((np.uint8, np.float32, np.int64))))
                archive.writestr("images.npy", mutated(buffer.getvalue(), draw))
            if draw.random() < 0.3:
                arrays.write_bytes(mutated(arrays.read_bytes(), draw))

            def read_npz():
                tree = open_tree(arrays)
                try:
                    for name in tree.names:
                        read_array(tree, name)
                finally:
                    tree.close()

            attempt("npz", read_npz)
        for _ in range(count):
            kind = draw.choice(("w", "w:gz", "zip"))
            path = Path(folder, {"w": "a.tar", "w:gz": "a.tar.gz", "zip": "a.zip"}[kind])
            if kind == "zip":
                with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr("d/train", b"x" * 5000)
            else:
                with tarfile.open(path, kind) as archive:
                    member = tarfile.TarInfo("d/train")
                    member.size = 5000
                    archive.addfile(member, io.BytesIO(b"x" * 5000))
            path.write_bytes(mutated(path.read_bytes(), draw))
            attempt("archive", lambda path=path: read_members(path, lambda name: True))
    print(json.dumps({**outcomes, "tried": sum(outcomes.values()), "growth_mib": peak_mib() - before}))
