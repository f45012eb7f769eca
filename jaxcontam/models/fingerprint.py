"""Digest of a model's files, each file hashed once until it changes."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

# A file this young could change again within the same tick of its clock.
_SETTLED_SECONDS = 2.0


def fingerprint_files(files: Sequence[Path], tokenizer: str) -> str:
    """`sha256:...` over the digests of the files and the tokenizer's text.

    A file's digest is kept in the user's cache folder under its `file_state`, so that
    a large model is hashed once.
    """
    digest = hashlib.sha256()
    known = _read_cache()
    fresh: dict[str, str] = {}
    for path in files:
        key = file_state(path)
        if (found := known.get(key)) is None:
            with path.open("rb") as handle:
                found = hashlib.file_digest(handle, "sha256").hexdigest()
            if file_state(path) == key and _is_settled(path):
                fresh[key] = found
        digest.update(bytes.fromhex(found))
    if fresh:
        _write_cache(_read_cache() | fresh)
    digest.update(tokenizer.encode())
    return f"sha256:{digest.hexdigest()}"


def file_state(path: Path) -> str:
    """Path, size, modification and change times, and inode of a file.

    The modification time alone can be set, and archives set it alike for all their
    files; the change time cannot.
    """
    stat = path.stat()
    times = f"{stat.st_mtime_ns}:{stat.st_ctime_ns}"
    return f"{path.resolve()}:{stat.st_size}:{times}:{stat.st_ino}"


def _is_settled(path: Path) -> bool:
    stat = path.stat()
    return time.time() - max(stat.st_mtime, stat.st_ctime) > _SETTLED_SECONDS


def _cache_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxcontam" / "digests.json"


def _read_cache() -> dict[str, str]:
    try:
        found = json.loads(_cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if _is_digest(value)}


def _is_digest(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) == 64
        and set(value) <= set("0123456789abcdef")
    )


def _write_cache(digests: dict[str, str]) -> None:
    """Replace the cache atomically; ignore a cache that cannot be written."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _cache_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(digests, indent=1), encoding="utf-8")
        partial.replace(path)
