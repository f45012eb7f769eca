"""Recognise an earlier run in a folder: the same run, another one, or none."""

import contextlib
import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from train.checkpoints import CHECKPOINTS_DIR, saved_steps
from train.manifest import Manifest, read_manifest

MODEL_DIR = "model"
MANIFEST_NAME = "manifest.json"
# What tpu_scripts write into a copy of a checkout, which has no .git.
CODE_VERSION_NAME = "code-version.txt"
_ROOT = Path(__file__).resolve().parent.parent


def earlier_manifest(out: Any, manifest: Manifest) -> Manifest | None:
    """Find the manifest of the same run, finished or resumable.

    Raises:
        InputError: If checkpoints of another run stand here, which a new run would
            take for its own or delete.
    """
    earlier = None
    if (out / MANIFEST_NAME).exists():
        try:
            earlier = read_manifest(out / MANIFEST_NAME)
        except InputError:
            earlier = None  # of another version, or damaged
    steps = saved_steps(out)
    if earlier is not None and run_inputs(earlier) == run_inputs(manifest):
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
    return fields


def first_difference(before: Any, now: Any, name: str) -> str:
    """The first input that differs, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        key = next(key for key in before | now if before.get(key) != now.get(key))
        path = f"{name}.{key}" if name else key
        return first_difference(before.get(key), now.get(key), path)
    if isinstance(before, list) or isinstance(now, list):
        return f"{name} differ"
    return f"{name} was {before!r}, is {now!r}"


def code_version() -> str | None:
    """Git commit of this checkout, with what was edited since; None outside of one.

    A copy without .git has it in a file from the checkout that it was made of.
    """
    with contextlib.suppress(OSError):
        if copied := (_ROOT / CODE_VERSION_NAME).read_text(encoding="utf-8").strip():
            return copied
    try:
        commit, edits = (
            subprocess.run(
                ["git", *words], cwd=_ROOT, capture_output=True, check=True
            ).stdout
            for words in (("rev-parse", "HEAD"), ("diff", "HEAD"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = commit.decode().strip()
    if edits:
        version += f"+{hashlib.sha256(edits).hexdigest()[:8]}"
    return version
