"""One stream for all processes of a run: made once on each disk, the same on all.

The first process that sees a disk makes the stream there, and those that see the same
disk read it. Every process compares with process 0 what it is about to train on.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.processes import barrier, gather, process_count, process_index
from train.disks import disk_leader
from train.earlier import MANIFEST_NAME, run_inputs
from train.manifest import read_manifest
from train.prepare import STREAM_NAME, Prepared
from train.rows import Rows

# Beside the stream, while other processes read it.
_STARTS_NAME = "stream-rows.npy"


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
            np.save(out / _STARTS_NAME, prepared.rows.starts)
        (out / f"new-{STREAM_NAME}").replace(out / STREAM_NAME)
    barrier("stream")


def rows_of_run(out: Path, prepared: Prepared | None, context: int) -> Rows:
    """What is trained on, the same in every process."""
    if prepared is None:
        starts = np.load(out / _STARTS_NAME)
        rows = Rows(np.load(out / STREAM_NAME, mmap_mode="r"), starts, context)
    else:
        rows = prepared.rows
    barrier("rows")
    if prepared is not None:
        (out / _STARTS_NAME).unlink(missing_ok=True)
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
