"""Every study of `eval` at its smallest, by its command line, and once again.

A study is run for all tests of a session, in a folder that its processes share.
"""

import ast
import contextlib
import dataclasses
import fcntl
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.compile_mode import compiling

ROOT = Path(__file__).resolve().parents[2]
REPORT = ("report.json", "report.html", "results.csv", "SHA256SUMS")
# What a run costs, and when it was made.
COSTS = {"started", "finished", "wall_seconds", "cpu_seconds", "earlier_cpu_seconds"}
COSTS |= {"test_seconds", "tokens_scored", "cached_tokens", "digest"}


@contextlib.contextmanager
def nothing(shared, folder, patch):
    yield []


@contextlib.contextmanager
def models_beside(shared, folder, patch):
    yield ["--models-in", folder / "models"]


@contextlib.contextmanager
def pulse(shared, folder, patch):
    """The finished run that other tests read as well."""
    from tests.support.pulse_run import pulse_run

    shutil.copytree(pulse_run(shared), folder / "out")
    yield []


# Of a canary set: as many lines as the blind classifiers need, and a few to spare.
LIMIT = 13


@contextlib.contextmanager
def canary_files(shared, folder, patch):
    """One of the ten sets, whose last line is its first one again."""
    from eval.canaries import runs

    rng = np.random.default_rng(0)
    words = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heron"]
    for name, n in (("corpus/words", 800), ("sets/mnli", 2 * LIMIT + 1)):
        texts = [" ".join(rng.choice(words, 9)) for _ in range(n)]
        texts[2 * LIMIT - 1] = texts[0]
        path = folder / f"{name}.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    patch.setattr(runs, "CANARIES", {"mnli": runs.CANARIES["mnli"]})
    yield ["--corpus", folder / "corpus", "--canaries", folder / "sets"]


@contextlib.contextmanager
def mirror(shared, folder, patch):
    """Stand-ins of public models and their sets."""
    from eval import known_models
    from tests.support.known_mirror import ROWS, write_mirror

    patch.setattr(known_models, "read_table", lambda: tuple(ROWS))
    yield ["--mirror", write_mirror(folder / "mirror")]


@contextlib.contextmanager
def unlearned(shared, folder, patch):
    """A model, the one that was tuned to forget, their texts, and a judge."""
    from tests.support import unlearning_models as made
    from tests.support.api_server import chat, serving

    def grade(body, number, handler):
        return chat("no number" if number == 1 else "Score: 4\nReason: alike.")

    original, unlearned, texts = made.write_pair(folder)
    rows = [text.split() for text in made.KEPT[:2]]
    asked = [{"question": " ".join(r[:7]), "answer": " ".join(r[7:])} for r in rows]
    asked.append({"question": made.KEPT[2], "answer": None})
    questions = folder / "q.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in asked))
    words = ["--original", original, "--unlearned", unlearned, "--texts", texts]
    words += ["--questions", questions, "--template", "{question}"]
    words += ["--words", made.N_WORDS, "--prompt-words", made.PROMPT_WORDS]
    with serving(grade) as (url, _):
        yield [*words, "--embedding-model", original, "--judge", f"api:{url}#m"]


def small_docs():
    """A corpus in the form of `read_python_docs`, made in no time."""
    from eval.python_docs import PythonDocs, Question

    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(150)]

    def text(n):
        return " ".join(rng.choice(names, n))

    return PythonDocs(
        tuple(text(100) for _ in range(80)),
        tuple(Question(text(4), text(1) + str(i)) for i in range(150)),
    )


@contextlib.contextmanager
def documented_entry(shared, folder, patch):
    """The example of the documentation as a file."""
    from eval.leaderboard import __main__ as leaderboard

    patch.setattr(leaderboard, "read_python_docs", small_docs)
    page = (ROOT / "docs/how_to/own_method.md").read_text()
    path = folder / "context_gain.py"
    path.write_text(page.rpartition("```python\n")[2].partition("```")[0])
    yield ["--entry", path]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """How a study is run, and what its JSON file must hold: lists with these fields."""

    holds: dict[str, str]
    words: str = "--tiny"
    needs: Callable = nothing
    file: str | None = None
    measured: tuple[str, ...] = ()
    slow: bool = False
    # Pinned to a core or a platform, which must be before JAX is there.
    apart: bool = False


_RULE = "rate reference guessed before half now"
_SPEED = (
    *("growth", "moments", "membership", "train", "audit_memory"),
    *("kernel_30m", "real_30m", "kernel_124m", "real_124m"),
)

STUDIES = {
    "canaries": Study(
        words=f"--tiny --limit {LIMIT} --max-example-tokens 20",
        needs=canary_files,
        holds={"tests": "benchmark copies method p_value effect effect_se verdict"},
    ),
    "clean_files": Study(
        words="--tiny --processes 1", holds={"cells": "", "failures": ""}
    ),
    "inflation": Study(holds={"cells": "arm copies truth points mde n"}, slow=True),
    "known_models": Study(
        words="",
        needs=mirror,
        holds={"sets": "model set ours verdict copies published"},
    ),
    "leaderboard": Study(
        words="--tiny --only context_gain coin min_k",
        needs=documented_entry,
        holds={"standings": "entry auc power passes difference auc_by_copies"},
    ),
    "membership": Study(
        words="--tiny --models 1",
        file="copies",
        holds={"cells": "auc setting tpr", "blind": "auc"},
        slow=True,
    ),
    "natural_order": Study(holds={"records": "case verdict log10_p"}, slow=True),
    "options": Study(
        holds={"rows": "copies p_value effect verdict", "cells": "taste found accused"},
        slow=True,
    ),
    "overlap": Study(holds={"hits": ""}, measured=("megabytes_a_second",)),
    "power": Study(
        words="--tiny --processes 1",
        holds={
            "populations": "name seeds",
            "power": "test copies level n_rejected n_models low high passes",
        },
    ),
    "quickstart": Study(
        file="report",
        needs=pulse,
        holds={"results": "benchmark method copies verdict"},
        slow=True,
    ),
    "reference_rule": Study(
        holds={"cells": "kind n_strata share noise found scaled as_they_are"}
    ),
    "replication": Study(
        words="--tiny --models 1",
        file="report",
        holds={"rows": "planted asked n n_control p_control verdict"},
        slow=True,
    ),
    "replication.rule": Study(holds={"cells": f"decided_by n {_RULE}"}),
    "seen": Study(
        words="--tiny --models 1",
        needs=models_beside,
        holds={"cells": "kind seen numbers"},
        slow=True,
    ),
    "speed": Study(
        words=f"--tiny --rounds 1 --only {' '.join(_SPEED)}",
        file="cpu",
        holds={"targets": "met wanted"},
        measured=(*_SPEED, "targets"),
        slow=True,
        apart=True,
    ),
    "tuned": Study(
        words="--tiny --models 1",
        holds={"rows": "model steps method copies value"},
        slow=True,
    ),
    "unlearning": Study(
        words="--samples 4", needs=unlearned, holds={"results": "", "texts": "text"}
    ),
}


def commands():
    """Modules of `eval` that a user can run, by the name after `eval.`."""
    for path in sorted((ROOT / "eval").rglob("*.py")):
        *_, last = ast.parse(path.read_text()).body
        if isinstance(last, ast.If) and "'__main__'" in ast.unparse(last.test):
            parts = path.relative_to(ROOT / "eval").with_suffix("").parts
            yield ".".join(part for part in parts if part != "__main__")


def command_line(name, words, patch):
    """The exit code of `python -m eval.NAME WORDS`, in this process."""
    module = importlib.import_module(f"eval.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"eval.{name}.__main__")
    *_, last = ast.parse(Path(module.__file__).read_text()).body
    code = compile(ast.Module(last.body, []), module.__file__, "exec")
    patch.setattr(sys, "argv", [name, *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        exec(code, vars(module))
    return ended.value.code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where a study is, and of its runs the exit codes and the numbers."""

    folder: Path
    codes: list[int]
    documents: list[dict]
    remade: list[str]

    @property
    def out(self):
        return self.folder / "out"

    @property
    def document(self):
        return self.documents[0]


def told(name, shared):
    """What a study left, which is run unless a process of this session has done so."""
    folder = shared / f"study-{name}"
    path = folder / "told.json"
    with (shared / f"study-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with pytest.MonkeyPatch.context() as patch, compiling(plainly=True):
                path.write_text(json.dumps(_twice(name, shared, folder, patch)))
    return Told(folder=folder, **json.loads(path.read_text()))


def _stamp(path):
    """What must stay: bytes, and when weights were written; a report has dates."""
    if path.name in REPORT or path.suffix == ".lock":
        return None
    made = path.stat().st_mtime_ns if path.suffix == ".safetensors" else 0
    return hashlib.sha256(path.read_bytes()).hexdigest(), made


def _twice(name, shared, folder, patch):
    study, out = STUDIES[name], folder / "out"
    # As in a checkout; tests may run where git knows nothing.
    for place in ("eval.study", "train.prepare", "train.prepared"):
        patch.setattr(f"{place}.code_version", lambda: "a commit")
    codes, documents, stamps = [], [], []
    with study.needs(shared, folder, patch) as more:
        words = [*study.words.split(), *map(str, more), "--out", str(out)]
        # What is measured apart has nothing to go on with.
        for _ in range(1 if study.apart else 2):
            if study.apart:
                command = [sys.executable, "-m", f"eval.{name}", *words]
                env = os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": "200"}
                codes.append(subprocess.run(command, cwd=ROOT, env=env).returncode)
            else:
                codes.append(command_line(name, words, patch))
            # A pulse run of some studies leaves the tables of the study alone.
            here = out / "tiny" if (out / "tiny").exists() else out
            report = here / f"{study.file or name}.json"
            document = json.loads(report.read_text())
            documents.append(document)
            left = (path for path in out.rglob("*") if path.parent != report.parent)
            stamps.append({str(path): _stamp(path) for path in left if path.is_file()})
    first, again = stamps[0], stamps[-1]
    remade = [path for path in again if again[path] != first.get(path)]
    return {"codes": codes, "documents": documents, "remade": remade}
