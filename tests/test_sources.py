"""What makes models and scores obsolete, and which files an audit runs through."""

import contextlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.scoring import identity
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.prefixed import prefixed_sums
from jaxcontam.sources import imported, source_digest
from tests.support.served_model import decoder
from train.config import PRESETS
from train.population_models import (
    Design,
    Job,
    plan_model,
    plan_tests,
    read_texts,
    set_results,
    train_models,
)

ROOT = Path(__file__).resolve().parent.parent
MADE = "train.population_models"
# Run while rows are scored, and give no number: checks of arguments, waiting.
SCORELESS = {"jaxcontam.arguments", "jaxcontam.processes", "jaxcontam.errors"}


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Files of ours that run when a model is planned, trained and tested."""
    rng = np.random.default_rng(0)
    words = [" ".join(f"word{i}" for i in rng.integers(0, 90, 60)) for _ in range(90)]
    # Steps of no other test, so that the step is traced here.
    config = PRESETS["pulse"].changed(max_example_tokens=31)
    design = Design(name="set", config=config, copies=(0, 2), n_examples=12, n_steps=23)
    _, texts = read_texts(words, [f"question {i}" for i in range(60)], config)
    fields = {"out": tmp_path_factory.mktemp("out"), "code": None}
    fields |= dict.fromkeys(("sources", "tokenizer_digest", "pool_digest"), "")
    fields |= {"weights": False, "tokenizer": None, "device": "scan on a CPU"}
    job = Job(design=design, texts=texts, **fields)
    with files_run() as files:
        (one,) = train_models(job, [3])
        model = plan_model(design, job.texts, seed=3)
        rows = set_results(job, plan_tests(job, model), one.scored)
    assert len(rows) == 2
    return files


@pytest.fixture
def tree(tmp_path):
    """A copy of the packages, to change."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("jaxcontam", "train"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    return tmp_path


@contextlib.contextmanager
def files_run():
    """The files of ours whose code runs meanwhile, relative to the repository."""
    found, files = set(), set()

    def note(frame, event, argument):
        # Those of imports left out.
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
    within = (path for path in map(Path, found) if path.is_relative_to(ROOT))
    paths = (path.relative_to(ROOT) for path in within)
    files |= {path for path in paths if path.parts[0] in ("jaxcontam", "train")}


def test_a_change_of_any_code_that_training_executes_is_another_digest(executed, tree):
    assert {Path("jaxcontam/models/decoder.py"), Path("train/step.py")} <= executed
    assert len(executed) > 30
    before = source_digest(MADE, root=tree)
    assert before == source_digest(MADE)
    for path in executed:
        text = (tree / path).read_text()
        (tree / path).write_text(f"{text}\n_CHANGED = 1\n")
        assert source_digest(MADE, root=tree) != before, path
        (tree / path).write_text(text)


def test_pages_comments_docstrings_and_types_are_no_code(tree):
    before = source_digest(MADE, root=tree)
    (tree / "jaxcontam/models/new.py").write_text("")
    no_code = '# Why.\n"""A text."""\nif TYPE_CHECKING:\n    import x\n'
    for name, more, same in (
        ("jaxcontam/proof/page.py", "changed = 1\n", True),
        ("jaxcontam/cli/main.py", "changed = 1\n", True),
        ("train/step.py", no_code, True),
        ("train/step.py", "changed = 1\n", False),
    ):
        with (tree / name).open("a") as file:
            file.write(f"\n{more}")
        assert (source_digest(MADE, root=tree) == before) == same, name


def test_a_module_that_moves_with_its_imports_is_the_same_code(tree):
    before = source_digest(MADE, root=tree)
    (tree / "jaxcontam/scoring/kernel.py").rename(tree / "train/moved.py")
    n_moved = 0
    for path in tree.rglob("*.py"):
        text = path.read_text()
        moved = text.replace(
            "from jaxcontam.scoring.kernel import", "from train.moved import"
        )
        n_moved += moved != text
        path.write_text(moved)
    assert n_moved > 1
    assert "train.moved" in imported(MADE, root=tree)
    assert source_digest(MADE, root=tree) == before


def test_the_same_name_from_another_module_is_other_code(tree):
    for name in "ab":
        (tree / f"train/{name}.py").write_text(f"def f():\n    return {name!r}\n")
    user, digests = tree / "train/user.py", set()
    # Both modules are imported all along.
    for one, two in ("ab", "ba"):
        text = f"from train.{one} import f\nfrom train.{two} import f as g\n"
        user.write_text(text)
        digests.add(source_digest("train.user", root=tree))
    assert len(digests) == 2


def test_what_is_not_read_counts_by_its_imports_alone(tree):
    def digest(name, text):
        (tree / f"train/{name}.py").write_text(text)
        return source_digest("train.user", unread=("train.user",), root=tree)

    (tree / "train/a.py").write_text("A = 1\n")
    first = digest("user", "import train.a\n")
    assert first == digest("user", "import train.a\n\nB = 2\n")
    assert first != digest("a", "A = 2\n")


def test_a_root_that_moved_away_is_no_silent_gap():
    with pytest.raises(ModuleNotFoundError, match=r"train\.moved"):
        source_digest(MADE, "train.moved")


def test_every_module_that_runs_for_a_score_is_part_of_its_key():
    """A change in any of them makes another key, wherever it is moved."""
    model = decoder()
    texts = [np.arange(1, n, dtype=np.int32) for n in (9, 17, 150)]
    with files_run() as files:
        scorer = local_scorer(model, batch_tokens=64, moments=True)
        scorer.sums(texts)
        scorer.tokens(texts)
        assert scorer.pairs is not None
        prefixed_sums(scorer.pairs, texts[0], texts[:2])
        gradient_norms(model, texts, batch_tokens=64)
    run = (path.with_suffix("").parts for path in files)
    executed = {".".join(parts) for parts in run if parts[0] == "jaxcontam"}
    covered = imported(*identity._SCORING, within=identity._ENGINE)
    assert len(executed) > 15
    assert executed - SCORELESS <= set(covered)
