"""What stands in a run's folder already: the same run, another one, or nothing."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from jaxcontam.data.manifest import Manifest, read_manifest
from jaxcontam.errors import InputError
from train.checkpoints import CHECKPOINTS_DIR, saved_steps

MODEL_DIR = "model"
MANIFEST_NAME = "manifest.json"


def earlier_manifest(out: Path, manifest: Manifest) -> Manifest | None:
    """That of the same run, if it stands here and is finished or can go on.

    Raises:
        InputError: If checkpoints of another run stand here.
    """
    earlier = None
    if (out / MANIFEST_NAME).exists():
        try:
            earlier = read_manifest(out / MANIFEST_NAME)
        except InputError:
            earlier = None  # of another version, which finished its models
    if earlier is not None and _inputs(earlier) == _inputs(manifest):
        is_same_code = manifest.code is not None and earlier.code == manifest.code
        if earlier.finished:
            has_model = (out / MODEL_DIR).is_dir()
            return earlier if has_model and is_same_code else None
        if saved_steps(out):
            if not is_same_code:
                print(
                    f"{out}: goes on with other code than it began with; weights may "
                    "differ from those of one run",
                    file=sys.stderr,
                )
            return earlier
        return None
    if earlier is not None and not earlier.finished and (steps := saved_steps(out)):
        raise InputError(
            f"{out}: holds an unfinished run of other inputs, at step {steps[-1]} of "
            f"{earlier.n_steps} ({_difference(earlier, manifest)})",
            hint=f"another --out, or delete {out / CHECKPOINTS_DIR} to start anew",
        )
    return None


def _inputs(manifest: Manifest) -> dict[str, Any]:
    """What a run follows from: not the code, nor what was found or done."""
    fields = json.loads(json.dumps(dataclasses.asdict(manifest)))
    for name in ("jaxcontam", "code", "finished", "allow_overlap"):
        del fields[name]
    for row in fields["sets"]:
        del row["overlap"]
    return fields


def _difference(earlier: Manifest, manifest: Manifest) -> str:
    """The first input that differs, in words."""
    before, now = _inputs(earlier), _inputs(manifest)
    name = next(name for name in before if before[name] != now[name])
    if isinstance(before[name], dict | list):
        return f"{name} differ"
    return f"{name} was {before[name]!r}, is {now[name]!r}"


def code_version() -> str | None:
    """Git commit of this checkout, with what was edited since; None outside of one."""
    root = Path(__file__).resolve().parent.parent
    try:
        commit, edits = (
            subprocess.run(
                ["git", *words], cwd=root, capture_output=True, check=True
            ).stdout
            for words in (("rev-parse", "HEAD"), ("diff", "HEAD"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = commit.decode().strip()
    if edits:
        version += f"+{hashlib.sha256(edits).hexdigest()[:8]}"
    return version
