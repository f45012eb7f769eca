"""Digests of source code, and what the key of stored scores covers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from served_model import decoder

import jaxcontam
from jaxcontam.scoring import identity
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.prefixed import prefixed_sums
from jaxcontam.sources import code_digest, imported_modules

# Run while rows are scored, and give no number: checks of arguments, waiting.
SCORELESS = {"jaxcontam.arguments", "jaxcontam.processes", "jaxcontam.errors"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose module `a` imports `b` in a function, and `c` by its name."""
    sources = {
        "__init__": "",
        "a": '"""Doc."""\n\ndef f():\n    import house.b\n    return 1  # One.\n',
        "b": "from house import c\n",
        "c": "import house_next_door\nX = 1\n",
        "d": "import house.a\n",
    }
    (tmp_path / "house").mkdir()
    for name, source in sources.items():
        (tmp_path / "house" / f"{name}.py").write_text(source)
    (tmp_path / "house_next_door.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "house"


def test_imports_are_followed_within_the_packages_alone(package):
    found = imported_modules(["house.a"], within=("house",))
    assert list(found) == ["house", "house.a", "house.b", "house.c"]
    assert "house" not in sys.modules


@pytest.mark.parametrize(
    ("name", "source", "changes"),
    [
        ("a", "def f():\n    import house.b\n\n    return 1\n", False),
        ("a", "def f():\n    import house.b\n    return 2\n", True),
        ("c", "import house_next_door\nX = 2\n", True),
        ("d", "X = 1\n", False),
    ],
)
def test_digest_follows_the_statements_of_what_is_imported(
    package, name, source, changes
):
    before = code_digest(["house.a"], within=("house",))
    (package / f"{name}.py").write_text(source)
    assert (code_digest(["house.a"], within=("house",)) != before) == changes


def test_a_root_that_moved_away_is_no_silent_gap(package):
    with pytest.raises(ModuleNotFoundError, match=r"house\.e"):
        code_digest(["house.a", "house.e"], within=("house",))


def test_every_module_that_runs_for_a_score_is_part_of_its_key():
    """A change in any of them makes another key, wherever it is moved."""
    files = set()

    def note(frame, event, argument):
        files.add(frame.f_code.co_filename)

    model = decoder()
    texts = [np.arange(1, n, dtype=np.int32) for n in (9, 17, 150)]
    sys.settrace(note)
    try:
        scorer = local_scorer(model, batch_tokens=64, moments=True)
        scorer.sums(texts)
        scorer.tokens(texts)
        assert scorer.pairs is not None
        prefixed_sums(scorer.pairs, texts[0], texts[:2])
        gradient_norms(model, texts, batch_tokens=64)
    finally:
        sys.settrace(None)
    package = Path(jaxcontam.__file__).parent
    executed = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in map(Path, files)
        if package in path.parents
    }
    covered = imported_modules(identity._SCORING, identity._ENGINE)
    assert len(executed) > 15
    assert executed - SCORELESS <= set(covered)
