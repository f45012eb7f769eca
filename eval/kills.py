"""Is anything lost when a command is killed, and is the rest the same to the bit?

Question: commands that are killed (SIGKILL) at random moments, some several times over,
and run again: do they end, with the files of a run that nobody touched, and with a
store that holds each score once?
Command: `python -m eval.quickstart && python -m eval.kills`. Hardware: a CPU core,
minutes. Headline: docs/results/kills.md, which is the table of this study.

Runs are forked from one process that has imported JAX and never used it. Training is
killed by `pytest -m slow tests/faults`.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval.study import Clock, Grid, data_file, finish_study, run_study
from jaxcontam.cli import main as jaxcontam
from jaxcontam.commands.flags import STORE_DIR, check_positive, check_seed
from jaxcontam.errors import InputError
from jaxcontam.report.report_files import REPORT_NAME, make_folder
from jaxcontam.scoring.remote_model import JOURNAL_NAME

# What differs between two runs that agree: times, what was found in a store, and the
# digests of these.
_OF_A_RUN = {"started", "wall_seconds", "digest", "cached_tokens", "tokens_scored"}
# Made of report.json; where a file was written is part of it.
_DERIVED = ("report.html", "results.csv", "SHA256SUMS", "comparison.html")
_MOST_IN_A_ROW = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one command.

    Attributes:
        name: The command.
        seconds: Of a run that nobody touched.
        n_kills: How often it was killed.
        n_runs: Runs that then went to their end.
        n_failed: How many of these had another exit code.
        n_other: How many left other results.
        excess: Largest share by which a store was larger than that of the run that
            nobody touched: scores kept twice, and lines that a kill cut off.
    """

    name: str
    seconds: float
    n_kills: int
    n_runs: int
    n_failed: int
    n_other: int
    excess: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Kill commands at random moments and compare what they leave."""

    n_kills: int = 100
    """Kills in all, spread over the commands."""
    model: Path = Path("runs/quickstart/model")
    """A model directory."""
    sets: Path = Path("runs/quickstart/sets")
    """Folder with pydocs-10.txt and pydocs-0a.txt."""
    seed: int = 0
    """Seeds the moments."""
    out: Path = Path("runs/kills")
    """Folder for what the commands write, the table and its numbers."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_kills")
        if not self.model.is_dir() or not self.sets.is_dir():
            raise InputError(
                f"{self.model}, {self.sets}: not there",
                hint="python -m eval.quickstart makes both",
            )

    def run(self) -> dict[str, Any]:
        """Kill, go on, compare, print; returns the numbers."""
        clock = Clock.start()
        # Before the first fork; its devices are not touched.
        import jax  # noqa: F401

        rng = random.Random(self.seed)
        with _serving(self.model) as url:
            commands, work = self._commands(url), self.out / "work"
            n, k = self.n_kills, len(commands)
            outcomes = [  # shares that add up
                killed(name, words, -((i - n) // k), rng, work / name)
                for i, (name, words) in enumerate(commands.items())
            ]
        columns = {
            "command": "{r.name}",
            "seconds": "{r.seconds:.1f}",
            "kills": "{r.n_kills}",
            "runs that went on": "{r.n_runs}",
            "failed": "{r.n_failed}",
            "other results": "{r.n_other}",
            "store larger by": "{r.excess:.2%}",
        }
        return finish_study(
            "kills",
            self,
            clock=clock,
            numbers={"outcomes": [dataclasses.asdict(one) for one in outcomes]},
            grids=[Grid.of("Killed and run again", outcomes, columns)],
        )

    def _commands(self, url: str) -> dict[str, list[str]]:
        matrix, wordings = self.out / "matrix.csv", self.out / "wordings.jsonl"
        unlearned = self.out / "unlearned"
        names = {"known": "10", "new": "0a", "other": "0b", "asked": "2", "seen": "50"}
        at = {
            **{name: str(self.sets / f"pydocs-{n}.txt") for name, n in names.items()},
            **{"model": str(self.model), "sets": str(self.sets), "url": url},
            **{"matrix": str(matrix), "wordings": str(wordings)},
            "unlearned": str(unlearned),
        }
        make_folder(self.out)
        lines = Path(at["known"]).read_text(encoding="utf-8").splitlines()
        rows = [{"text": t, "variants": [" ".join(t.split()[::-1])]} for t in lines]
        wordings.write_text("".join(json.dumps(row) + "\n" for row in rows))
        shutil.copytree(self.model, unlearned, dirs_exist_ok=True)
        with (unlearned / "config.json").open("a") as file:
            file.write("\n")  # another fingerprint
        matrix.write_text("".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(999)))
        return {
            name: [word.format(**at) for word in command.split()]
            for name, command in data_file(__file__).items()
        }


@contextlib.contextmanager
def _serving(model: Path) -> Iterator[str]:
    """URL of a server of a model, in a fork; the tests' own."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        from jaxcontam.models.checkpoint import load_checkpoint
        from tests.model_server import running_server

        with running_server(load_checkpoint(str(model)), name="model") as url:
            os.write(writer, url.encode())
            signal.pause()
    try:
        yield os.read(reader, 99).decode()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def killed(
    name: str, words: Sequence[str], n_kills: int, rng: random.Random, folder: Path
) -> Outcome:
    """Run a command untouched, and then as often as `n_kills` kills take.

    Words may hold `{}` for the folder of a run, of which `folder` takes many; `rng`
    gives the moments, and how many kills one run meets.
    """
    shutil.rmtree(folder, ignore_errors=True)
    # The first run may compile programs that later ones find.
    seconds, code = 0.0, 0
    for run in ("first", "untouched"):
        seconds, code = _run(_at(words, folder / run), None)
    expected, size = results(folder / "untouched"), _store_bytes(folder / "untouched")
    done, n_runs, n_failed, n_other, excess = 0, 0, 0, 0, 0.0
    while done < n_kills:
        out = folder / str(n_runs)
        for _ in range(min(n_kills - done, rng.randint(1, _MOST_IN_A_ROW))):
            _, status = _run(_at(words, out), seconds * rng.random())
            done += status == -signal.SIGKILL
        n_runs += 1
        n_failed += _run(_at(words, out), None)[1] != code
        n_other += results(out) != expected
        excess = max(excess, _store_bytes(out) / size - 1 if size else 0.0)
        shutil.rmtree(out)
    return Outcome(name, seconds, done, n_runs, n_failed, n_other, excess)


def _at(words: Sequence[str], out: Path) -> list[str]:
    """A command that writes to a folder, where `{}` stands for it if it is named."""
    at = [word.replace("{}", str(out)) for word in words]
    return at if "--out" in at else [*at, "--out", str(out)]


def results(out: Path) -> dict[str, str]:
    """Digest of every file under a folder, without what differs from run to run."""
    found = {}
    for path in sorted(out.rglob("*")):
        if not path.is_file() or path.suffix == ".lock":
            continue
        # A server's answers stand in the order in which they came.
        if path.name in (*_DERIVED, JOURNAL_NAME):
            continue
        if path.is_relative_to(out / STORE_DIR):
            continue
        data = path.read_bytes()
        if path.name == REPORT_NAME or path.suffix == ".json":
            data = json.dumps(_settled(json.loads(data), str(out))).encode()
        found[str(path.relative_to(out))] = hashlib.sha256(data).hexdigest()
    return found


def _settled(value: Any, out: str) -> Any:
    """A report without what belongs to one run."""
    if isinstance(value, dict):
        return {k: _settled(v, out) for k, v in value.items() if k not in _OF_A_RUN}
    if isinstance(value, list):
        return [_settled(one, out) for one in value]
    return "OUT" if value == out else value


def _store_bytes(out: Path) -> int:
    kept = (*(out / STORE_DIR).rglob("*"), *out.glob(JOURNAL_NAME))
    return sum(path.stat().st_size for path in kept)


def _run(words: list[str], limit: float | None) -> tuple[float, int]:
    """Run in a fork, killed after `limit` seconds; seconds it took, and its status."""
    start = time.monotonic()
    if (child := os.fork()) == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = 1
        try:
            code = jaxcontam(words)
        finally:
            os._exit(code)
    if limit is not None:
        time.sleep(limit)
        # One that has ended waits to be read, and is not touched by this.
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return time.monotonic() - start, os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(run_study("kills", Kills))
