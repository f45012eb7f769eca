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
import types
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


def pulse(shared, folder, **_):
    """The finished run that other tests read as well."""
    from tests.support.pulse_run import pulse_run

    shutil.copytree(pulse_run(shared), folder / "out")
    return []


def lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# Of a canary set: as many lines as the blind classifiers need, and a few to spare.
LIMIT = 13


def canary_files(folder, patch, **_):
    """One of the ten sets, whose last line is its first one again."""
    from eval.canaries import tables

    rng = np.random.default_rng(0)
    words = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heron"]
    for name, n in (("corpus/words", 800), ("sets/mnli", 2 * LIMIT + 1)):
        texts = [" ".join(rng.choice(words, 9)) for _ in range(n)]
        texts[2 * LIMIT - 1] = texts[0]
        lines(folder / f"{name}.jsonl", [{"text": text} for text in texts])
    patch.setattr(tables, "CANARIES", {"mnli": tables.CANARIES["mnli"]})
    return ["--corpus", folder / "corpus", "--canaries", folder / "sets"]


def mirror(folder, patch, **_):
    """Stand-ins of public models and their sets."""
    from eval import known_models
    from tests.support.known_mirror import ROWS, write_mirror

    patch.setattr(known_models, "read_table", lambda: tuple(ROWS))
    return ["--mirror", write_mirror(folder / "mirror")]


def unlearned(folder, stack, **_):
    """A model, the one that was tuned to forget, their texts, and a judge."""
    from tests.support import unlearning_models as made
    from tests.support.api_server import chat, serving

    grades = ("Score: 4\nReason: alike.", "no number")
    original, unlearned, texts = made.write_pair(folder)
    rows = [text.split() for text in made.KEPT[:2]]
    asked = [{"question": " ".join(r[:7]), "answer": " ".join(r[7:])} for r in rows]
    asked.append({"question": made.KEPT[2], "answer": None})
    words = ["--original", original, "--unlearned", unlearned, "--texts", texts]
    questions = lines(folder / "q.jsonl", asked)
    words += ["--questions", questions, "--template", "{question}"]
    words += ["--words", made.N_WORDS, "--prompt-words", made.PROMPT_WORDS]
    judge = serving(lambda _, number, __: chat(grades[number == 1]))
    url, _ = stack.enter_context(judge)
    return [*words, "--embedding-model", original, "--judge", f"api:{url}#m"]


def two_models(folder, **_):
    """Small models with a tokenizer."""
    from tests.support.unlearning_models import write_pair

    return ["--models", *write_pair(folder)[:2]]


def models_and_files(folder, **_):
    """These, and a benchmark."""
    from tests.support.membership_model import MEMBERS

    file = lines(folder / "asked.jsonl", [{"text": text} for text in MEMBERS])
    return [*two_models(folder), "--files", file]


def one_model(folder, **_):
    """The first of them."""
    return ["--model", two_models(folder)[1]]


def dated_texts(folder, **_):
    """As many texts of before 2025 as of later."""
    from tests.support.membership_model import MEMBERS, OTHERS

    rows = [
        {"text": text, "date": date}
        for date, texts in (("2020-05-06", MEMBERS), ("2026-07-08", OTHERS))
        for text in texts
    ]
    return ["--texts", lines(folder / "dated.jsonl", rows), "--lengths", 8]


def small_docs():
    """A corpus in the form of `read_python_docs`, made in no time."""
    from eval.python_docs import PythonDocs, Question

    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(150)]

    def text(n):
        return " ".join(rng.choice(names, n))

    questions = tuple(Question(text(4), text(1) + str(i)) for i in range(150))
    return PythonDocs(tuple(text(100) for _ in range(80)), questions)


def documented_entry(folder, patch, **_):
    """The example of the documentation as a file."""
    from eval.leaderboard import trials

    patch.setattr(trials, "read_python_docs", small_docs)
    page = (ROOT / "docs/how_to/own_method.md").read_text()
    path = folder / "context_gain.py"
    path.write_text(page.rpartition("```python\n")[2].partition("```")[0])
    return ["--entry", path]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """How a study is run, and what its JSON file must hold: lists with these fields."""

    holds: dict[str, str]
    words: str = "--tiny"
    needs: Callable = lambda **_: []
    file: str | None = None
    measured: tuple[str, ...] = ()
    slow: bool = False
    # Pinned to a core or a platform, which must be before JAX is there.
    apart: bool = False


_POWER = "n_rejected n_models low high passes"
_HOLDS = {
    "canaries": {"tests": "benchmark copies method p_value effect effect_se verdict"},
    "downstream": {
        "cells": "part setting task method auc tpr",
        "accuracy": "setting task seen unseen difference gain",
        "trends": "where paper here verdict",
    },
    "inflation": {"cells": "arm copies truth points mde n"},
    "known_models": {"sets": "model set ours verdict copies published"},
    "leaderboard": {"standings": "entry auc power passes difference auc_by_copies"},
    "membership": {"cells": "auc setting tpr"},
    "natural_order": {"records": "case verdict log10_p"},
    "options": {"rows": "copies p_value effect verdict", "cells": "found accused"},
    "overlap": {"hits": ""},
    "power": {"populations": "name seeds", "power": f"test copies level {_POWER}"},
    "quickstart": {"results": "benchmark method copies verdict"},
    "public": {"rows": "model file group verdict refused"},
    "real_models": {
        "parity": "model texts way n_tokens worst mean",
        "natural": "model kind law direction_p refused verdict",
    },
    "real_quickstart": {"results": "benchmark method verdict p_value"},
    "reference_rule": {"cells": "kind n_strata share noise found scaled"},
    "replication": {"rows": "planted asked n n_control p_control verdict"},
    "replication.rule": {"cells": "decided_by n rate reference guessed before now"},
    "tuned": {"rows": "model steps method copies value"},
    "unlearning": {"results": "", "texts": "text"},
    "wikimia": {"files": "length n_a_side rows"},
}
_WORDS = {
    "canaries": f"--tiny --limit {LIMIT} --max-example-tokens 20",
    "known_models": "",
    "leaderboard": "--tiny --only context_gain coin min_k",
    "power": "--tiny --processes 1",
    "unlearning": "--samples 4",
}
_TRAINED = ("membership", "replication", "tuned")
_WORDS |= dict.fromkeys(_TRAINED, "--tiny --models 1")
_RATES = "--rates 0.001 0.01 --rate 0.01 --background 2000 4000"
_WORDS["downstream"] = f"--tiny --models 1 {_RATES}"
_NEEDS = {
    "canaries": canary_files,
    "known_models": mirror,
    "leaderboard": documented_entry,
    "public": models_and_files,
    "quickstart": pulse,
    "real_models": two_models,
    "real_quickstart": one_model,
    "unlearning": unlearned,
    "wikimia": dated_texts,
}
_FILES = dict.fromkeys(("quickstart", "real_quickstart", "replication"), "report")
_SLOW = {*_TRAINED, "downstream", "inflation", "natural_order", "options", "quickstart"}
_SPEED = ("train", "growth", "score_30m", "score_124m", "pairs_135m")

STUDIES = {
    "speed": Study(
        words=f"--tiny --rounds 1 --only {' '.join(_SPEED)}",
        file="cpu",
        holds={"parts": ""},
        measured=("parts",),
        slow=True,
        apart=True,
    ),
}
STUDIES |= {
    name: Study(
        words=_WORDS.get(name, "--tiny"),
        holds=holds,
        needs=_NEEDS.get(name, lambda **_: []),
        file=_FILES.get(name),
        measured=("megabytes_a_second",) if name == "overlap" else (),
        slow=name in _SLOW,
    )
    for name, holds in _HOLDS.items()
}


def last_statement(path):
    """The one that a user runs."""
    return ast.parse(Path(path).read_text()).body[-1]


def commands():
    """Modules of `eval` that a user can run, by the name after `eval.`."""
    for path in sorted((ROOT / "eval").rglob("*.py")):
        last = last_statement(path)
        if isinstance(last, ast.If) and "'__main__'" in ast.unparse(last.test):
            parts = path.relative_to(ROOT / "eval").with_suffix("").parts
            yield ".".join(part for part in parts if part != "__main__")


def command_line(name, words, patch):
    """The exit code of `python -m eval.NAME WORDS`, in this process."""
    module = importlib.import_module(f"eval.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"eval.{name}.__main__")
    last = last_statement(module.__file__)
    code = compile(ast.Module(last.body, []), module.__file__, "exec")
    patch.setattr(sys, "argv", [name, *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        exec(code, vars(module))
    return ended.value.code


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
    found = json.loads(path.read_text())
    places = {"folder": folder, "out": folder / "out"}
    return types.SimpleNamespace(document=found["documents"][0], **places, **found)


def _stamp(path):
    """What must stay: bytes, and when weights were written; a report has dates."""
    if path.name in REPORT or path.suffix == ".lock":
        return None
    made = path.stat().st_mtime_ns if path.suffix == ".safetensors" else 0
    return hashlib.sha256(path.read_bytes()).hexdigest(), made


def _twice(name, shared, folder, patch):
    study, out = STUDIES[name], folder / "out"
    # As in a checkout; tests may run where git knows nothing.
    for place in ("eval.study", "train.prepare"):
        patch.setattr(f"{place}.code_version", lambda: "a commit")
    codes, documents, stamps = [], [], []
    with contextlib.ExitStack() as stack:
        more = study.needs(shared=shared, folder=folder, patch=patch, stack=stack)
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
            documents.append(json.loads(report.read_text()))
            left = (path for path in out.rglob("*") if path.parent != report.parent)
            stamps.append({str(path): _stamp(path) for path in left if path.is_file()})
    remade = [path for path, one in stamps[-1].items() if one != stamps[0].get(path)]
    return {"codes": codes, "documents": documents, "remade": remade}
