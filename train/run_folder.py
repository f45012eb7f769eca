"""The folder of a run: who sees it, what stands in it, and where it is kept."""

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from jaxcontam.data.journal import lock
from jaxcontam.errors import InputError, StorageError, first_line
from jaxcontam.processes import (
    barrier,
    broadcast_bytes,
    gather,
    process_count,
    process_index,
)
from train.checkpoints import CHECKPOINTS_DIR, saved_steps
from train.config import recipe_now
from train.manifest import Manifest, read_manifest

MODEL_DIR = "model"
MANIFEST_NAME = "manifest.json"
# Written by tpu_scripts into a copy of a checkout, which has no .git.
CODE_VERSION_NAME = "code-version.txt"
_ROOT = Path(__file__).resolve().parent.parent
# What of a checkout can change weights or scores.
_CODE = ("*.py", "*.toml", "*.txt")
LOCK_NAME = "run.lock"
_SCHEMES = ("gs", "s3")
_REFUSED = (
    *(FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError),
    *(ImportError, NotImplementedError, ValueError),
)


def earlier_manifest(out: Any, manifest: Manifest) -> Manifest | None:
    """Find the manifest of the same run, finished or resumable."""
    earlier, steps = None, saved_steps(out)
    if (out / MANIFEST_NAME).exists():
        # One of another version, or damaged, cannot be read.
        with contextlib.suppress(InputError):
            earlier = read_manifest(out / MANIFEST_NAME)
    is_same = earlier is not None and run_inputs(earlier) == run_inputs(manifest)
    if earlier is not None and is_same:
        # Without git the version of the package says all that is known of the code.
        is_same_code = earlier.code == manifest.code and (
            manifest.code is not None or earlier.jaxcontam == manifest.jaxcontam
        )
        if earlier.finished and is_same_code and (out / MODEL_DIR).is_dir():
            return earlier
        if steps and not earlier.finished:
            if not is_same_code:
                print(
                    f"{out}: goes on with other code than it began with; weights may "
                    "differ from those of one run",
                    file=sys.stderr,
                )
            return earlier
        if earlier.finished and not steps:
            print(f"{out}: made by other code, trained again", file=sys.stderr)
    if steps:
        raise InputError(
            f"{out}: holds checkpoints of {_run_words(earlier, manifest)}, the last "
            f"at step {steps[-1]}",
            hint=f"another --out, or delete {out / CHECKPOINTS_DIR} to start anew",
        )
    if (out / MODEL_DIR).is_dir() and not is_same:
        raise InputError(
            f"{out}: holds the model of {_run_words(earlier, manifest)}",
            hint=f"another --out, or delete {out} to start anew",
        )
    return None


def _run_words(earlier: Manifest | None, manifest: Manifest) -> str:
    """Describe the run that occupies the folder."""
    if earlier is None:
        return "a run whose manifest cannot be read"
    state = "a finished run" if earlier.finished else "an unfinished run"
    if run_inputs(earlier) == run_inputs(manifest):
        return f"{state} of other code"
    difference = first_difference(run_inputs(earlier), run_inputs(manifest), "")
    return f"{state} of other inputs ({difference})"


def run_inputs(manifest: Manifest) -> dict[str, Any]:
    """What a run follows from: not the code, nor what was found or done."""
    fields = json.loads(json.dumps(dataclasses.asdict(manifest)))
    for name in ("jaxcontam", "code", "finished"):
        del fields[name]
    for row in fields["sets"]:
        del row["overlap"]
    data = {name: fields[name] for name in ("separator", "max_example_tokens")}
    recipe = recipe_now(fields.pop("recipe"), **data)
    # The first to be compared: another option explains what else differs.
    return {"recipe": recipe, **fields}


def first_difference(before: Any, now: Any, name: str) -> str:
    """The first input that differs, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        missing = object()
        key = next(
            key
            for key in before | now
            if before.get(key, missing) != now.get(key, missing)
        )
        path = f"{name}.{key}" if name else key
        return first_difference(before.get(key), now.get(key), path)
    if isinstance(before, list) or isinstance(now, list):
        return f"{name} differ"
    return f"{name} was {before!r}, is {now!r}"


def code_version() -> str | None:
    """Git commit of this checkout, and what of its code was edited or added since.

    A copy without .git has it in a file from the checkout that it was made of; None
    where neither is there.
    """
    with contextlib.suppress(OSError):
        if copied := (_ROOT / CODE_VERSION_NAME).read_text(encoding="utf-8").strip():
            return copied

    def git(*words: str) -> bytes:
        done = subprocess.run(
            ["git", *words], cwd=_ROOT, capture_output=True, check=True
        )
        return done.stdout

    try:
        version = git("rev-parse", "HEAD").decode().strip()
        edits = git("diff", "HEAD", "--", *_CODE)
        others = ("--others", "--exclude-standard", "-z")
        for name in git("ls-files", *others, "--", *_CODE).split(b"\0")[:-1]:
            edits += name + (_ROOT / os.fsdecode(name)).read_bytes()
    except (OSError, subprocess.CalledProcessError):
        return None
    if edits:
        version += f"+{hashlib.sha256(edits).hexdigest()[:8]}"
    return version


def disk_leader(folder: Path) -> int:
    """The first of the processes that see this process's folder; itself where alone.

    All processes ask at the same time, each for its own folder of this name.
    """
    if process_count() == 1:
        return 0
    nonce = broadcast_bytes(secrets.token_hex(8).encode()).decode()
    mark = folder / f".process-{nonce}-{process_index()}"
    mark.touch()
    try:
        barrier("marked")
        # A listing asks the server, where a name may be looked up in a cache.
        found = [
            int(name.rpartition("-")[2])
            for name in os.listdir(folder)
            if name.startswith(f".process-{nonce}-")
        ]
        barrier("seen")
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()
    return min(found)


def is_url(word: object) -> bool:
    """Whether a word names a place that is no folder here, such as gs://bucket/run."""
    return "://" in str(word)


@contextlib.contextmanager
def one_line(flag: str, place: str, done: str) -> Iterator[None]:
    """One line for errors of a block in which a place is only `read` or `written`."""
    try:
        yield
    except (InputError, StorageError):
        raise
    except Exception as e:
        where, said = f"{flag} {place}: cannot be {done}", first_line(e)[:200]
        if isinstance(e, _REFUSED):
            raise InputError(
                f"{where} ({said})",
                hint="is it there, and may this user or machine read and write there? "
                "gs:// needs gcsfs, s3:// s3fs",
            ) from e
        raise StorageError(
            f"{where} now ({said})",
            hint="is the disk or the network there, with room, and this machine logged "
            "in? Then run the same command again",
        ) from e


def run_home(word: str | None, out: Path, flag: str = "--checkpoints") -> Any:
    """The `epath.Path` that keeps checkpoints, and all that must outlive `out`'s disk.

    Without a word it is `out`. A place that is none, or that this process may not write
    to, is refused; a bucket that is silent is a StorageError.
    """
    if word is None:
        return epath.Path(os.path.abspath(out))
    is_bucket = is_url(word)
    if is_bucket and word.partition("://")[0] not in _SCHEMES:
        raise InputError(
            f"{flag} {word}: an address begins with "
            f"{', '.join(f'{scheme}://' for scheme in _SCHEMES)}",
            hint="or name a folder where the bucket is mounted",
        )
    home = epath.Path(word if is_bucket else os.path.abspath(word))
    with one_line(flag, word, "written"):
        home.mkdir(parents=True, exist_ok=True)
        # A bucket has no folders to make: only a file shows whether it can be written.
        probe = home / f".written-{process_index()}-{secrets.token_hex(8)}"
        probe.write_text("written")
        probe.unlink()
    return home


@contextlib.contextmanager
def alone(folder: Path, flag: str = "--out") -> Iterator[None]:
    """Keep other processes out of a run's folder; a killed one holds nothing."""
    hint = f"wait until that run has ended, or name another folder with {flag}"
    with (folder / LOCK_NAME).open("w") as handle:
        lock(handle.fileno(), folder, hint=hint)
        yield


def check_home(home: Any) -> None:
    """Refuse a folder that is another one on another host."""
    if process_count() == 1 or is_url(home):
        return
    home.mkdir(parents=True, exist_ok=True)
    leaders = gather(np.array([disk_leader(Path(home))]))
    # All end together: one that went on would wait for the others.
    if leaders.any():
        raise InputError(
            f"{home}: process {int(leaders.argmax())} does not see what process 0 "
            "writes there, and all processes write parts of a checkpoint",
            hint="--checkpoints names a folder that all hosts share, or gs://bucket/run",
        )


def keep_at_home(out: Path, home: Any, *names: str) -> None:
    """Copy files and folders of a run where they outlive its disk.

    What is not in `out` goes there too: it would be of another run.
    """
    if is_same_folder(out, home):
        return
    copy_to(epath.Path(out.absolute()), home, names)


def copy_to(folder: Any, home: Any, names: Iterable[str]) -> None:
    """Copy files and folders, one after the other; what is not in `folder` goes."""
    home.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = folder / name, home / name
        if source.is_dir():
            if target.exists():
                target.rmtree()
            copy_to(source, target, [path.name for path in source.iterdir()])
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            source.copy(target, overwrite=True)
        elif target.exists():
            target.unlink()


def is_same_folder(out: Path, home: Any) -> bool:
    """Whether a run is kept where it is written, also by a link."""
    return not is_url(home) and home.exists() and os.path.samefile(out, home)
