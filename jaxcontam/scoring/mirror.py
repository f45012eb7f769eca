"""A store at a URL, mirrored in a local folder, for hosts that share no disk.

Scoring reads and writes the folder alone. Before it, what the URL holds is fetched;
while it runs and at its end, what the folder has gained is published. Objects are
written once, with all that is known of them in their names:

    STEM.START-END.scores      bytes START to END, whole lines, of a host's STEM.scores
    shard-I-of-N.NANOSECONDS   share I of N began then

A file that was fetched keeps its object's name, and is read like any other.
"""

import contextlib
import hashlib
import os
import re
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from jaxcontam.data.bucket import bucket_errors, is_url
from jaxcontam.errors import InputError, StorageError
from jaxcontam.scoring.store import SUFFIX
from jaxcontam.terminal import visible

_SEGMENT = re.compile(rf"(.+)\.(\d+)-(\d+){re.escape(SUFFIX)}", re.ASCII)
# More digits are no time that a file can have.
_MARK = re.compile(r"(shard-\d+-of-\d+)\.(\d{1,19})", re.ASCII)
_EVERY_SECONDS = 30
# Read and sent at once.
_MOST_BYTES = 64 << 20


def url_folder(url: str) -> Path:
    """The folder that mirrors a URL, the same for every run in this directory."""
    url = url.rstrip("/")
    name = re.sub(r"[^\w.-]+", "-", url.partition("://")[2], flags=re.ASCII)[-60:]
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return Path("runs") / "stores" / f"{name.strip('.-')}-{digest}"


def local_folder(store: str | Path | None) -> Path | None:
    """The folder that a caller names for a store; None for none.

    Raises:
        InputError: If it is a URL, which commands alone fetch and publish.
    """
    if is_url(store):
        raise InputError(
            f"{store}: a store at a URL goes with the command line",
            hint="name a folder, or run jaxcontam with --store URL",
        )
    return None if store is None else Path(store)


@contextlib.contextmanager
def mirrored(
    url: str, folder: Path, *, writes: bool = True, every: float = _EVERY_SECONDS
) -> Iterator[None]:
    """Mirror a store while the block scores in its folder.

    Args:
        url: Any that fsspec knows, such as gs://bucket/scores.
        folder: Where it is mirrored.
        writes: Whether what is new is published; False needs no right to write.
        every: Seconds between publications; a killed run loses as much.

    Raises:
        InputError: If the URL is none, or refuses this machine.
        StorageError: If it is silent: the folder has all scores, and the next run
            publishes them.
    """
    mirror = Mirror(url, folder)
    mirror.fetch()
    if not writes:
        yield
        return
    mirror.check()
    is_over = threading.Event()

    def publish_often() -> None:
        while not is_over.wait(every):
            # The last publication says what is wrong, if it still is.
            with contextlib.suppress(InputError, StorageError):
                mirror.publish()

    thread = threading.Thread(target=publish_often, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        mirror.publish()


class Mirror:
    """What a URL and a folder have of each other."""

    def __init__(self, url: str, folder: Path):
        """Name both.

        Raises:
            InputError: If the URL names no place, its scheme is unknown, or its package
                missing.
        """
        import fsspec.core

        # fsspec takes a scheme by itself for a folder here.
        if not url.partition("://")[2].strip("/"):
            raise InputError(
                f"--store {url}: names no place",
                hint="such as gs://BUCKET/scores; a variable may be empty",
            )
        self._url, self._folder = url, folder
        with bucket_errors("--store", url, "read"):
            self._fs, self._root = fsspec.core.url_to_fs(url.rstrip("/"))
        # End of what is published, by file; marks that are.
        self._ends: dict[str, int] = {}
        self._marks: set[str] = set()

    def fetch(self) -> None:
        """Copy what the folder lacks."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with bucket_errors("--store", self._url, "read"):
            segments, wanted = [], []
            for name, size in self._listed().items():
                if found := _MARK.fullmatch(name):
                    self._marks.add(name)
                    self._set_mark(self._folder / found[1], int(found[2]))
                elif found := _SEGMENT.fullmatch(name):
                    start, end = int(found[2]), int(found[3])
                    if size == end - start:
                        segments.append((start, end, found[1] + SUFFIX, name))
                    else:
                        print(
                            f"jaxcontam: warning: {visible(f'{self._url}/{name}')}: is "
                            "damaged (not of the length in its name); what is missing "
                            "is done again",
                            file=sys.stderr,
                        )
            for start, end, own, name in sorted(segments):
                if start <= self._ends.get(own, 0):
                    self._ends[own] = max(end, self._ends.get(own, 0))
                if not (self._has(own, end) or self._has(name, end - start)):
                    wanted.append(name)
            self._copy(wanted)

    def check(self) -> None:
        """Write and remove an object, since nothing else shows that this is allowed."""
        with bucket_errors("--store", self._url, "written"):
            probe = f"{self._root}/.written-{secrets.token_hex(8)}"
            self._fs.pipe_file(probe, b"written")
            # An account may add objects and not remove them.
            with contextlib.suppress(Exception):
                self._fs.rm_file(probe)

    def publish(self) -> None:
        """Write what the URL lacks of the folder's own files."""
        with bucket_errors("--store", self._url, "written"):
            for path in sorted(self._folder.iterdir()):
                # Of other names some go meanwhile: a process beside this one fetches.
                if _MARK.fullmatch(f"{path.name}.0"):
                    self._publish_mark(f"{path.name}.{path.stat().st_mtime_ns}")
                elif path.suffix == SUFFIX and not _SEGMENT.fullmatch(path.name):
                    self._publish_lines(path)

    def _publish_mark(self, mark: str) -> None:
        if mark not in self._marks:
            self._fs.pipe_file(f"{self._root}/{mark}", b"")
            self._marks.add(mark)

    def _publish_lines(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.seek(self._ends.get(path.name, 0))
            # The last line may be half written.
            while data := (read := file.read(_MOST_BYTES))[: read.rfind(b"\n") + 1]:
                name = f"{path.stem}.{start}-{start + len(data)}{SUFFIX}"
                self._fs.pipe_file(f"{self._root}/{name}", data)
                start = self._ends[path.name] = file.seek(start + len(data))

    def _listed(self) -> dict[str, int]:
        """Size of each object, by name."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}  # a bucket has no folder before its first object
        return {one["name"].rpartition("/")[2]: one.get("size", 0) for one in found}

    def _copy(self, names: list[str]) -> None:
        """Fetch objects side by side; each file is whole once it has its name."""
        if not names:
            return
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self._folder) as fresh:
            fetched = [os.path.join(fresh, name) for name in names]
            self._fs.get([f"{self._root}/{name}" for name in names], fetched)
            for name, path in zip(names, fetched, strict=True):
                os.replace(path, self._folder / name)

    def _has(self, name: str, size: int) -> bool:
        path = self._folder / name
        return path.exists() and path.stat().st_size >= size

    def _set_mark(self, path: Path, time_ns: int) -> None:
        """Date a share's mark by its latest start; the newest division counts."""
        if not path.exists() or path.stat().st_mtime_ns < time_ns:
            path.touch()
            os.utime(path, ns=(time_ns, time_ns))
