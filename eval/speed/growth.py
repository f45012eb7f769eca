"""How do time and memory grow with a file, where scoring costs nothing?

What is measured is reading, checks, plans, analysis and reports, with what they import
and the files that membership and overlap need beside the rows.
"""

import json
import math
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import jaxcontam
from eval.speed.measure import Table, in_fresh_process

_N_ROWS, _TINY = (1_000, 10_000, 100_000), (200, 400)
# Jobs that do a million rows in minutes, within 6 GB.
_MILLION = ("audit",)
# Eight words of seven letters: 63 characters.
_WORDS_A_ROW, _N_WORDS = 8, 5_000


def measure_growth(_rounds: int, *, tiny: bool) -> Table:
    """CPU seconds and peak memory of each job by rows.

    `power` is that of the rows by which seconds grow from the size before.
    """
    found: Table = {}
    for job in _JOBS:
        before: dict[str, float] = {}
        more = (1_000_000,) * (job in _MILLION)
        for n in _TINY if tiny else _N_ROWS + more:
            with tempfile.TemporaryDirectory() as folder:
                now = in_fresh_process("cpu", "growth", "cost", job, n, folder)
            found[f"{job}, {n:,} rows"] = dict(now)
            if before:
                grown = now["CPU s"] / before["CPU s"]
                power = math.log(grown) / math.log(n / before["n"])
                found[f"{job}, {n:,} rows"]["power"] = power
            before = {"n": n, **now}
    return found


def cost(job: str, n: int, folder: str) -> dict[str, float]:
    """CPU seconds of a job of n rows, and GB of this process at its peak."""
    path = _write_rows(Path(folder) / "rows.jsonl", n, seed=0)
    start = time.process_time()
    _JOBS[job](path, n)
    seconds = time.process_time() - start
    # A peak of RUSAGE_SELF would be that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    return {"CPU s": seconds, "peak GB": 1024e-9 * int(peak[1])}


def _audit(path: Path, _: int) -> None:
    jaxcontam.audit(_free, path, text="question").save(path.parent / "audit")


def _audit_random(path: Path, _: int) -> None:
    found = jaxcontam.audit(_free, path, text="question", order="random")
    found.save(path.parent / "audit")


def _membership(path: Path, n: int) -> None:
    other = _write_rows(path.parent / "others.jsonl", n, seed=1)
    scores = path.parent / "scores.jsonl"
    rng = np.random.default_rng(2)
    with scores.open("w") as file:
        for one in (path, other):
            for line in one.open():
                text = json.loads(line)["question"]
                logprobs = (-rng.exponential(3.0, 16)).round(3).tolist()
                file.write(json.dumps({"text": text, "logprobs": logprobs}) + "\n")
    found = jaxcontam.membership(
        str(scores), members=path, nonmembers=other, text="question"
    )
    found.save(path.parent / "membership")


def _overlap(path: Path, n: int) -> None:
    from jaxcontam.cli.main import main

    corpus = _write_rows(path.parent / "corpus.jsonl", n, seed=1)
    words = ["overlap", corpus, path, "--corpus-field", "question"]
    assert main([*map(str, words), "--out", str(path.parent / "overlap")]) == 0


def _replicate(path: Path, _: int) -> None:
    from jaxcontam.replication.design import plan_replication
    from jaxcontam.replication.flags import ReplicationDesign

    plan_replication(path, ReplicationDesign(task="plain", text="question"))


def _free(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """A number of each pair that follows from its texts alone."""
    return [-1e-8 * zlib.crc32(f"{a}\0{b}".encode()) for a, b in pairs]


_JOBS: dict[str, Callable[[Path, int], None]] = {
    "audit": _audit,
    "audit --order random": _audit_random,
    "membership": _membership,
    "overlap": _overlap,
    "replicate, plan": _replicate,
}


def _write_rows(path: Path, n: int, *, seed: int) -> Path:
    """A file of n questions, each of random words of seven letters."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(97, 123, (_N_WORDS, 7), np.uint8)
    words = np.array([row.tobytes().decode() for row in letters])
    with path.open("w") as file:
        for start in range(0, n, 10_000):
            drawn = rng.integers(_N_WORDS, size=(min(10_000, n - start), _WORDS_A_ROW))
            for row in words[drawn].tolist():
                file.write(json.dumps({"question": " ".join(row)}) + "\n")
    return path
