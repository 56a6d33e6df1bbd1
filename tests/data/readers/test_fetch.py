"""Downloads from a real server on this machine that misbehaves as told."""

import hashlib
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_archives import tar_with

from acr.data.loading import fetch
from acr.data.readers import fetch as fetching
from acr.data.readers.fetch import Download
from acr.errors import AcrError, InputError


def publish(folder: Path) -> bytes:
    """An archive like CIFAR-100's, large enough to be cut."""
    import os

    content = os.urandom(300_000)
    files = [("cifar-100-python/train", content), ("cifar-100-python/test", b"t"), ("cifar-100-python/meta", b"m")]
    return tar_with(folder / "published.tar.gz", *files).read_bytes()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """``plan`` lists what to do with each request in turn; then it serves properly."""
    content = publish(tmp_path)
    state = SimpleNamespace(content=content, plan=[], seen=[], ranges=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.seen.append(wanted)
            action = state.plan.pop(0) if state.plan else "serve"
            if isinstance(action, int) and action >= 400:
                self.send_error(action)
                return
            body, start = state.content, 0
            if wanted and state.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            body = body[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if action == "cut" else body)

        def log_message(self, *_: object) -> None:
            pass

    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    state.source = Download(
        f"http://127.0.0.1:{http_server.server_port}/cifar-100-python.tar.gz",
        len(content),
        hashlib.md5(content).hexdigest(),
        unpacked=400_000,
    )
    yield state
    http_server.shutdown()
    http_server.server_close()


def get(server: SimpleNamespace, root: Path, **options: object) -> Path:
    return fetch("split-cifar100", root, download=server.source, quiet=True, pause=0, **options)


def test_fetched_unpacked_and_left_alone_the_second_time(server: SimpleNamespace, tmp_path: Path) -> None:
    place = get(server, tmp_path / "data")
    assert place == tmp_path / "data/cifar-100-python"
    assert (place / "meta").read_bytes() == b"m"
    assert len((place / "train").read_bytes()) == 300_000
    assert {path.name for path in (tmp_path / "data").iterdir()} == {".split-cifar100.lock", "cifar-100-python"}
    assert get(server, tmp_path / "data") == place
    assert server.seen == [None]


def test_the_default_place_is_where_it_is_looked_for(
    server: SimpleNamespace, own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert fetch("split-cifar100", download=server.source, quiet=True).parent == own_cache / "downloads"
    monkeypatch.setenv("ACR_DATA", str(tmp_path / "named"))
    assert fetch("split-cifar100", download=server.source, quiet=True).parent == tmp_path / "named"


def test_a_broken_connection_is_resumed_at_once(server: SimpleNamespace, tmp_path: Path) -> None:
    server.plan = ["cut", "cut"]
    get(server, tmp_path / "data")
    size = len(server.content)
    first = size // 2
    assert server.seen == [None, f"bytes={first}-", f"bytes={first + (size - first) // 2}-"]


def test_a_download_given_up_is_resumed_by_the_next_command(server: SimpleNamespace, tmp_path: Path) -> None:
    server.plan = ["cut"]
    with pytest.raises(AcrError, match="same command again"):
        get(server, tmp_path / "data", attempts=1)
    assert (tmp_path / "data/cifar-100-python.tar.gz.part").stat().st_size == len(server.content) // 2
    get(server, tmp_path / "data", attempts=1)
    assert server.seen[1] == f"bytes={len(server.content) // 2}-"


def test_a_server_without_ranges_starts_over(server: SimpleNamespace, tmp_path: Path) -> None:
    server.plan, server.ranges = ["cut"], False
    assert (get(server, tmp_path / "data") / "train").stat().st_size == 300_000


def test_a_wrong_checksum_is_refused_and_removed(server: SimpleNamespace, tmp_path: Path) -> None:
    flipped = bytearray(server.content)
    flipped[1000] ^= 1
    server.content = bytes(flipped)
    with pytest.raises(AcrError, match="not the file its publisher describes"):
        get(server, tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".split-cifar100.lock"]


def test_a_stale_part_is_found_out(server: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/cifar-100-python.tar.gz.part").write_bytes(b"x" * 1000)
    with pytest.raises(AcrError, match="publisher describes"):
        get(server, tmp_path / "data")
    get(server, tmp_path / "data")


def test_a_part_that_is_too_long_starts_over(server: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/cifar-100-python.tar.gz.part").write_bytes(b"x" * (len(server.content) + 1))
    get(server, tmp_path / "data")
    assert server.seen == [None]


def test_another_size_is_refused_before_it_is_fetched(server: SimpleNamespace, tmp_path: Path) -> None:
    server.content += b"more"
    with pytest.raises(AcrError, match="the file has changed"):
        get(server, tmp_path / "data")


def test_server_errors(server: SimpleNamespace, tmp_path: Path) -> None:
    server.plan = [404]
    with pytest.raises(AcrError, match="answered 404"):
        get(server, tmp_path / "data")
    assert len(server.seen) == 1
    server.plan = [503, 500]
    assert get(server, tmp_path / "data").is_dir()
    server.plan = [503] * 9
    with pytest.raises(AcrError, match="503"):
        get(server, tmp_path / "other", attempts=3)


def test_no_server_at_all(server: SimpleNamespace, tmp_path: Path) -> None:
    closed = Download("http://127.0.0.1:9/x.tar.gz", 10, "0", 10)
    with pytest.raises(AcrError, match="connection failed"):
        fetch("split-cifar100", tmp_path / "data", download=closed, quiet=True, pause=0, attempts=2)


def test_too_little_space_is_told_before_anything_is_fetched(server: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(AcrError, match=r"Not enough space.*--data-root"):
        get(server, tmp_path / "data", free=lambda folder: 1_000_000)
    assert server.seen == []


def test_a_disk_that_fills_up_keeps_what_it_has(
    server: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with room for 100,000 bytes."""
    real_open = Path.open

    class Small(io.FileIO):
        def write(self, data: object) -> int:
            if self.tell() >= 100_000:
                raise OSError(28, "No space left on device")
            return super().write(bytes(data)[: 100_000 - self.tell()])  # type: ignore[call-overload]

    def small_open(path: Path, mode: str = "r", *rest: object, **named: object) -> object:
        if path.name.endswith(".part") and mode == "wb":
            return io.BufferedWriter(Small(str(path), "w"))
        return real_open(path, mode, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", small_open)
        patch.setattr(fetching, "CHUNK", 10_000)
        with pytest.raises(AcrError, match=r"is full.*kept"):
            get(server, tmp_path / "data")
    assert 0 < (tmp_path / "data/cifar-100-python.tar.gz.part").stat().st_size <= 100_000
    assert get(server, tmp_path / "data").is_dir()
    assert server.seen[-1] is not None


def test_what_cannot_be_fetched_says_why() -> None:
    with pytest.raises(InputError, match=r"image-net\.org"):
        fetch("split-mini-imagenet")
    with pytest.raises(InputError, match="comes with the program"):
        fetch("split-digits")
    with pytest.raises(InputError, match="your own data"):
        fetch("folder:pictures")
    with pytest.raises(InputError, match="Did you mean 'split-cifar10"):
        fetch("split-cifar1000")
