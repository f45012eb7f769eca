"""A run's data prepared elsewhere: stream, rows, tokenizer and manifest in one place.

`python -m train.prepare` writes it on a machine without chips, and `train.pretrain`
with the same flags reads it: all that is left to do before the first step is to copy
the stream.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from jaxcontam import __version__
from jaxcontam.data.bucket import bucket_errors
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from train.disks import copy_to, keep_at_home, run_home
from train.earlier import MANIFEST_NAME, code_version, first_difference
from train.export import TOKENIZER_DIR, read_run_tokenizer
from train.manifest import Manifest, read_manifest, write_manifest
from train.plan import PlannedSet
from train.prepare import STREAM_NAME, Prepared, RunOptions, Start, searched
from train.presets import Preset, preset_to_json
from train.rows import Rows
from train.tokenizer import prefix_id

FLAG = "--prepared"
_STARTS_NAME = "rows.npy"
# The manifest last: it says that the rest exists.
_NAMES = (STREAM_NAME, _STARTS_NAME, TOKENIZER_DIR, MANIFEST_NAME)


def save_prepared(
    prepare: Callable[[Path], Prepared],
    sets: Sequence[PlannedSet],
    *,
    out: Path,
    place: str,
) -> Manifest:
    """Prepare a run of these sets in `out`, and keep it at a place; needs no device.

    `prepare` writes the stream to a file. What is kept is whole once its manifest is
    there.

    Raises:
        InputError: As `prepare` and `searched`, and if the place cannot be written.
    """
    home = run_home(place, out, FLAG)
    (home / MANIFEST_NAME).unlink(missing_ok=True)
    prepared = prepare(out / STREAM_NAME)
    manifest = searched(prepared, sets)
    np.save(out / _STARTS_NAME, prepared.rows.starts)
    prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
    write_manifest(manifest, out / MANIFEST_NAME)
    keep_at_home(out, home, *_NAMES)
    return manifest


def fetch_prepared(
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    stream_file: Path,
    seed: int,
    options: RunOptions,
    start: Start | None = None,
) -> Prepared:
    """What `save_prepared` kept, with its stream on this disk.

    The corpus is not read: its digest, its budget and its tokenizer are those of what
    was prepared, and all else that a run says must be, too. The stream's length is
    checked, its digest is not: that would take as long as to write it.

    Raises:
        InputError: If nothing was prepared there, or for a run of other flags or sets.
    """
    from etils import epath

    place = options.prepared
    assert place is not None
    kept = epath.Path(place)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with bucket_errors(FLAG, place, "read"):
            if not (kept / MANIFEST_NAME).exists():
                raise InputError(
                    f"{FLAG} {place}: nothing is prepared there",
                    hint="python -m train.prepare with the same flags",
                )
            copy_to(kept, epath.Path(folder), _NAMES[1:])
        manifest = read_manifest(folder / MANIFEST_NAME)
        _check(manifest, place, sets, preset, seed=seed, options=options, start=start)
        tokenizer = read_run_tokenizer(folder)
        starts = np.load(folder / _STARTS_NAME)
    stream_file.unlink(missing_ok=True)
    try:
        # On the same disk no bytes are copied.
        os.link(kept / STREAM_NAME, stream_file)
    except OSError:
        with bucket_errors(FLAG, place, "read"):
            (kept / STREAM_NAME).copy(epath.Path(stream_file))
    ids = np.load(stream_file, mmap_mode="r")
    if len(ids) != manifest.n_tokens:
        raise InputError(f"{place}: {STREAM_NAME} is not as long as its manifest says")
    return Prepared(
        # Whoever trains again with other code must not find its own work done.
        manifest=dataclasses.replace(
            manifest, jaxcontam=__version__, code=code_version()
        ),
        rows=Rows(ids, starts, preset.context),
        documents=None,
        tokenizer=tokenizer,
        plain=plain_tokenizer(tokenizer.backend_tokenizer),
        prefix_id=prefix_id(tokenizer) if start is None else start.prefix_id,
    )


def _check(
    manifest: Manifest,
    place: str,
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    seed: int,
    options: RunOptions,
    start: Start | None,
) -> None:
    """Refuse what was prepared for another run."""
    before = {
        "seed": manifest.seed,
        "separator": manifest.separator,
        "max_example_tokens": manifest.max_example_tokens,
        "allow_overlap": manifest.allow_overlap,
        "init": manifest.init_fingerprint,
        "recipe": manifest.recipe,
        "sets": [
            (row.name, row.copies, row.when, row.layout, row.form, row.fingerprint)
            for row in manifest.sets
        ],
    }
    now = {
        "seed": seed,
        "separator": options.separator,
        "max_example_tokens": options.max_example_tokens,
        "allow_overlap": options.allow_overlap,
        "init": None if start is None else start.fingerprint,
        "recipe": preset_to_json(preset),
        "sets": [
            (row.name, row.copies, row.when, row.layout, row.form, digest)
            for row in sets
            for digest in [row.benchmark.fingerprint]
        ],
    }
    if before != now:
        raise InputError(
            f"{FLAG} {place}: prepared for another run "
            f"({first_difference(before, now, '')})",
            hint="the flags, the sets and the seed must be those of train.prepare",
        )
