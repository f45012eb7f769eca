"""Reports of canaries, variants and options: what `verify` catches."""

import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import REPORT_NAME
from tests.support.forged import reseal
from tests.support.labelled_rows import write_lines

pytestmark = pytest.mark.unoptimised

WORDS = [*"abcdefghijklmnopqrstuvwxyz"]
METHODS = {"canary": 4, "variants": 1, "options": 1}
"""Method -> how many tests its report has."""


@pytest.fixture(scope="module")
def reports(pulse, tmp_path_factory):
    """A finished folder for each kind of test, by method."""
    folder = tmp_path_factory.mktemp("versions")
    rng = np.random.default_rng(0)

    def words(n):
        return " ".join(rng.choice(WORDS, n))

    secret, held_out = folder / "s.txt", folder / "h.txt"
    for path, n in ((secret, 3), (held_out, 31)):
        path.write_text("".join(f"{words(9)}\n" for _ in range(n)))
    rows = [
        {"text": words(5), "variants": [words(4) for _ in range(1 + i % 3)]}
        for i in range(15)
    ]
    variants = write_lines(folder / "v.jsonl", rows)
    rows = [
        {
            "q": f"Which {i}?",
            # No two items share options.
            "choices": [f"{c}{i}" for c in rng.choice(WORDS, 3 + i % 3, replace=False)],
            "answer": int(rng.integers(3)),
        }
        for i in range(25)
    ]
    items = write_lines(folder / "mc.jsonl", rows)
    model = str(pulse / "model")
    typed = {
        "canary": ["canary", model, "--secret", str(secret), "--held-out"],
        "variants": ["variants", model, str(variants), "--randomised"],
        "options": [
            "audit",
            model,
            str(items),
            "--tests",
            "options",
            "--n-orders",
            "4",
        ],
    }
    typed["canary"].append(str(held_out))
    for name, words_of in typed.items():
        assert main([*words_of, "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def forged(reports, tmp_path, capsys):
    """Change a copy under a mended seal, and verify it; returns what was printed."""

    def forge(name, *changes):
        folder = shutil.copytree(reports / name, tmp_path / name)
        reseal(folder, *changes)
        assert main(["verify", str(folder)]) == 3
        return capsys.readouterr().out

    return forge


@pytest.mark.parametrize("command", ["verify", "report"])
def test_a_report_of_another_format_names_the_version_that_reads_it(
    reports, tmp_path, capsys, command
):
    folder = shutil.copytree(reports / "options", tmp_path / "options")
    reseal(folder, lambda document: document.update(schema=1, jaxcontam="0.1.0"))
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{REPORT_NAME}: a report of format 1, where this version reads 2" in said
    assert "hint: jaxcontam 0.1.0 wrote it and reads it" in " ".join(said.split())


@pytest.mark.parametrize("name", METHODS)
def test_untouched_report_is_verified(reports, capsys, name):
    assert main(["verify", str(reports / name)]) == 0
    n, s = METHODS[name], "s" * (METHODS[name] > 1)
    assert f"verified, {n} test{s} recomputed" in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "fields",
    [
        {"p_value": 1e-9},
        {"log10_p": -9.0},
        {"effect": 7.0},
        {"verdict": "contaminated"},
    ],
)
def test_number_that_its_scores_do_not_give_is_caught(forged, name, fields):
    ((field, value),) = fields.items()
    said = forged(name, lambda document: document["results"][0].update(fields))
    assert f"{field} is {value!r}" in said


def raise_published(arrays):
    arrays["0/scores"][:, 0] += 3.0


def choose_places(arrays):
    arrays["0/place"][:] = 0


PLACE = "place: not what the seed and the file draw"


@pytest.mark.parametrize(
    ("name", "arrays", "fault"),
    [
        *((name, raise_published, "p_value is") for name in METHODS),
        *((name, choose_places, PLACE) for name in ("variants", "options")),
    ],
)
def test_scores_and_places_that_were_changed_are_caught(forged, name, arrays, fault):
    assert fault in forged(name, None, arrays)


def test_exposure_that_its_rank_does_not_give_is_caught(forged):
    said = forged("canary", lambda d: d["results"][2].update(exposure=4.75))
    assert "exposure is 4.75" in said
