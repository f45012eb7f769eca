"""Reports of canaries, variants and options: their words, and what `verify` catches."""

import io
import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
)

pytestmark = pytest.mark.unoptimised

WORDS = [*"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture(scope="module")
def reports(pulse, tmp_path_factory):
    """A finished folder for each kind of test, by method."""
    folder = tmp_path_factory.mktemp("versions")
    rng = np.random.default_rng(0)
    model = str(pulse / "model")
    s, h = folder / "s.txt", folder / "h.txt"
    for path, n in ((s, 3), (h, 31)):
        lines = [" ".join(rng.choice(WORDS, 9)) for _ in range(n)]
        path.write_text("".join(f"{line}\n" for line in lines))
    (folder / "v.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "text": " ".join(rng.choice(WORDS, 5)),
                    "variants": [
                        " ".join(rng.choice(WORDS, 4)) for _ in range(1 + i % 3)
                    ],
                }
            )
            + "\n"
            for i in range(15)
        )
    )
    (folder / "mc.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "q": f"Which {i}?",
                    # No two items share options.
                    "choices": [
                        f"{word}{i}"
                        for word in rng.choice(WORDS, 3 + i % 3, replace=False)
                    ],
                    "answer": int(rng.integers(3)),
                }
            )
            + "\n"
            for i in range(25)
        )
    )
    audit = ["audit", model, str(folder / "mc.jsonl"), "--tests", "options"]
    words = {
        "canary": ["canary", model, "--secret", str(s), "--held-out", str(h)],
        "variants": ["variants", model, str(folder / "v.jsonl"), "--randomised"],
        "options": [*audit, "--n-orders", "4"],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def report(reports, tmp_path):
    """A copy of a report that may be spoilt."""
    return lambda name: shutil.copytree(reports / name, tmp_path / name)


def reseal(folder, change_row=None, change_arrays=None):
    """Spoil numbers, and mend all digests as a forger would."""
    document = json.loads((folder / REPORT_NAME).read_text())
    if change_arrays is not None:
        with np.load(folder / ARCHIVE_NAME) as archive:
            arrays = {name: archive[name] for name in archive.files}
        change_arrays(arrays)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        (folder / ARCHIVE_NAME).write_bytes(buffer.getvalue())
        document["digests"][ARCHIVE_NAME] = archive_digest(folder / ARCHIVE_NAME)
    if change_row is not None:
        change_row(document["results"])
    (folder / REPORT_NAME).write_text(sealed_text(document))


@pytest.mark.parametrize("command", ["verify", "report"])
def test_a_report_of_another_format_names_the_version_that_reads_it(
    report, capsys, command
):
    folder = report("options")
    document = json.loads((folder / REPORT_NAME).read_text())
    document |= {"schema": 1, "jaxcontam": "0.1.0"}
    (folder / REPORT_NAME).write_text(sealed_text(document))
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{REPORT_NAME}: a report of format 1, where this version reads 2" in said
    assert "hint: jaxcontam 0.1.0 wrote it and reads it" in " ".join(said.split())


METHODS = ["canary", "variants", "options"]


@pytest.mark.parametrize("name", METHODS)
def test_untouched_report_is_verified(reports, capsys, name):
    assert main(["verify", str(reports / name)]) == 0
    n_tests = {"canary": 4}.get(name, 1)
    tests = "tests" if n_tests > 1 else "test"
    assert f"verified, {n_tests} {tests} recomputed" in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("p_value", 1e-9),
        ("log10_p", -9.0),
        ("effect", 7.0),
        ("verdict", "contaminated"),
    ],
)
def test_number_that_its_scores_do_not_give_is_caught_under_a_mended_seal(
    report, capsys, name, field, value
):
    folder = report(name)
    reseal(folder, lambda rows: rows[0].update({field: value}))
    assert main(["verify", str(folder)]) == 3
    assert f"{field} is {value!r}" in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
def test_score_that_was_changed_is_caught_under_a_mended_seal(report, capsys, name):
    folder = report(name)

    def raise_published(arrays):
        arrays["0/scores"][:, 0] += 3.0

    reseal(folder, change_arrays=raise_published)
    assert main(["verify", str(folder)]) == 3
    assert "p_value is" in capsys.readouterr().out


def test_exposure_that_its_rank_does_not_give_is_caught(report, capsys):
    folder = report("canary")
    reseal(folder, lambda rows: rows[2].update(exposure=4.75))
    assert main(["verify", str(folder)]) == 3
    assert "exposure is 4.75" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["variants", "options"])
def test_places_that_were_chosen_are_caught(report, capsys, name):
    folder = report(name)

    def move(arrays):
        arrays["0/place"][:] = 0

    reseal(folder, change_arrays=move)
    assert main(["verify", str(folder)]) == 3
    assert "place: not what the seed and the file draw" in capsys.readouterr().out
