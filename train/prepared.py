"""A run's data: prepared elsewhere and fetched, or made once on each disk.

`python -m train.prepare` keeps stream, rows, tokenizer and manifest in one place, from
a machine without chips, and `train.pretrain` with the same flags reads them: all that
is left to do before the first step is to copy the stream.

The first process that sees a disk makes the stream there, and those that see the same
disk read it. Every process compares with process 0 what it is about to train on.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from jaxcontam import __version__
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.processes import barrier, gather, process_count, process_index
from train.config import config_to_json
from train.data import Corpus, Rows
from train.export import TOKENIZER_DIR, read_run_tokenizer
from train.manifest import Manifest, read_manifest, write_manifest
from train.prepare import (
    STREAM_NAME,
    VALIDATION_ROWS,
    Prepared,
    Run,
    prepare,
    searched,
)
from train.run_folder import (
    MANIFEST_NAME,
    code_version,
    copy_to,
    disk_leader,
    first_difference,
    keep_at_home,
    one_line,
    run_home,
    run_inputs,
)
from train.tokens import prefix_id

FLAG = "--prepared"
_STARTS_NAME = "rows.npy"
# The manifest last: it says that the rest exists.
_NAMES = (STREAM_NAME, _STARTS_NAME, VALIDATION_ROWS, TOKENIZER_DIR, MANIFEST_NAME)
# Beside the stream, while other processes read it.
_SHARED_STARTS = "stream-rows.npy"


def save_prepared(
    run: Run, corpus: Corpus | Sequence[str], *, tokenizer: Any
) -> Manifest:
    """Prepare a run in its folder, and keep it at `options.prepared`; uses no device.

    What is kept is whole once its manifest is there.

    Raises:
        InputError: As `prepare` and `searched`, and if the place cannot be written.
    """
    out, home = run.out, run_home(run.options.prepared, run.out, FLAG)
    (home / MANIFEST_NAME).unlink(missing_ok=True)
    prepared = prepare(run, corpus, out / STREAM_NAME, tokenizer=tokenizer)
    manifest = searched(prepared, run.sets)
    np.save(out / _STARTS_NAME, prepared.rows.starts)
    np.save(out / VALIDATION_ROWS, prepared.validation)
    prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
    write_manifest(manifest, out / MANIFEST_NAME)
    keep_at_home(out, home, *_NAMES)
    return manifest


def fetch_prepared(run: Run, stream_file: Path) -> Prepared:
    """What `save_prepared` kept, with its stream on this disk.

    The corpus is not read: its digest, its budget and its tokenizer are those of what
    was prepared, and all else that a run says must be, too. The stream's length is
    checked, its digest is not: that would take as long as to write it.

    Raises:
        InputError: If nothing was prepared there, or for a run of other flags or sets.
    """
    place = run.options.prepared
    assert place is not None
    kept = epath.Path(place)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with one_line(FLAG, place, "read"):
            if not (kept / MANIFEST_NAME).exists():
                raise InputError(
                    f"{FLAG} {place}: nothing is prepared there",
                    hint="python -m train.prepare with the same flags",
                )
            copy_to(kept, epath.Path(folder), _NAMES[1:])
        manifest = read_manifest(folder / MANIFEST_NAME)
        _check(manifest, place, run)
        tokenizer = read_run_tokenizer(folder)
        starts = np.load(folder / _STARTS_NAME)
        validation = np.load(folder / VALIDATION_ROWS)
    stream_file.unlink(missing_ok=True)
    try:
        # On the same disk no bytes are copied.
        os.link(kept / STREAM_NAME, stream_file)
    except OSError:
        with one_line(FLAG, place, "read"):
            (kept / STREAM_NAME).copy(epath.Path(stream_file))
    ids = np.load(stream_file, mmap_mode="r")
    if len(ids) != manifest.n_tokens:
        raise InputError(f"{place}: {STREAM_NAME} is not as long as its manifest says")
    return Prepared(
        # Whoever trains again with other code must not find its own work done.
        manifest=dataclasses.replace(
            manifest, jaxcontam=__version__, code=code_version()
        ),
        rows=Rows(ids, starts, run.config.context),
        validation=validation,
        documents=None,
        tokenizer=tokenizer,
        plain=plain_tokenizer(tokenizer.backend_tokenizer),
        prefix_id=prefix_id(tokenizer) if run.start is None else run.start.prefix_id,
    )


def _check(manifest: Manifest, place: str, run: Run) -> None:
    """Refuse what was prepared for another run."""
    options, start = run.options, run.start
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
        "seed": run.seed,
        "separator": options.separator,
        "max_example_tokens": options.max_example_tokens,
        "allow_overlap": options.allow_overlap,
        "init": None if start is None else start.checkpoint.fingerprint,
        "recipe": config_to_json(run.config),
        "sets": [
            (row.name, row.copies, row.when, row.layout, row.form, digest)
            for row in run.sets
            for digest in [row.benchmark.fingerprint]
        ],
    }
    if before != now:
        raise InputError(
            f"{FLAG} {place}: prepared for another run "
            f"({first_difference(before, now, '')})",
            hint="the flags, the sets and the seed must be those of train.prepare",
        )


@contextlib.contextmanager
def prepared_once(
    out: Path, prepare: Callable[[Path], Prepared]
) -> Iterator[Prepared | None]:
    """Prepare a run on each disk; process 0 always does.

    The block decides whether the run may begin, and then calls `place_stream`: else
    what was prepared is gone after it.

    Yields:
        What this process prepared; None where another one did, on the same disk.

    Raises:
        InputError: If processes prepared different data.
    """
    leads = disk_leader(out) == process_index()
    # Beside that of a finished run, until it is known that this one may begin.
    fresh_stream = out / f"new-{STREAM_NAME}"
    if leads and not _holds_finished(out):
        # A run that goes on makes its stream anew: the disk need not hold two.
        (out / STREAM_NAME).unlink(missing_ok=True)
    try:
        prepared = prepare(fresh_stream) if leads else None
        _check_same(prepared)
        yield prepared
    finally:
        if leads:
            for left in out.glob(f"{fresh_stream.name}*"):
                left.unlink()


def place_stream(out: Path, prepared: Prepared | None) -> None:
    """Put the stream where it is trained from; all processes at the same time."""
    if prepared is not None:
        if process_count() > 1:
            np.save(out / _SHARED_STARTS, prepared.rows.starts)
        np.save(out / VALIDATION_ROWS, prepared.validation)
        (out / f"new-{STREAM_NAME}").replace(out / STREAM_NAME)
    barrier("stream")


def rows_of_run(out: Path, prepared: Prepared | None, context: int) -> Rows:
    """What is trained on, the same in every process."""
    if prepared is None:
        starts = np.load(out / _SHARED_STARTS)
        rows = Rows(np.load(out / STREAM_NAME, mmap_mode="r"), starts, context)
    else:
        rows = prepared.rows
    barrier("rows")
    if prepared is not None:
        (out / _SHARED_STARTS).unlink(missing_ok=True)
    return rows


def _holds_finished(out: Path) -> bool:
    """Whether a finished run stands here, or one of which nothing is known."""
    if not (out / MANIFEST_NAME).exists():
        return False
    try:
        return read_manifest(out / MANIFEST_NAME).finished
    except InputError:
        return True


def _check_same(prepared: Prepared | None) -> None:
    own = bytes(hashlib.sha256().digest_size)
    if prepared is not None:
        inputs = json.dumps(run_inputs(prepared.manifest), sort_keys=True)
        digest = hashlib.sha256(inputs.encode())
        digest.update(prepared.rows.starts.tobytes())
        own = digest.digest()
    told = gather(np.frombuffer(own, np.uint8))
    for process, other in enumerate(told):
        if other.any() and (other != told[0]).any():
            raise InputError(
                f"process {process} prepared other data than process 0",
                hint="the corpus, the sets, the flags and the code must be the same "
                "on every host",
            )
