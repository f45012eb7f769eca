"""What `verify` finds: changed bytes, and under a mended seal what does not follow."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import ARCHIVE_NAME, REPORT_NAME
from tests.support.forged import reseal

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def reports(pulse, tmp_path_factory):
    """Folders of honest reports of several commands."""
    folder = tmp_path_factory.mktemp("reports")
    lines = (pulse / "sets/pydocs-0a.txt").read_text().splitlines()
    rows = [{"text": line, "half": i // 15} for i, line in enumerate(lines)]
    grouped = folder / "grouped.jsonl"
    grouped.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ordered = folder / "ordered.txt"
    ordered.write_text("".join(f"{line}\n" for line in sorted(lines, key=len)))
    matrix = str(folder / "m.npy")
    np.save(matrix, np.random.default_rng(0).normal(size=(20, 5)))
    audit = ["audit", str(pulse / "model")]
    plain, other = (str(pulse / f"sets/pydocs-{name}.txt") for name in ("50", "0a"))
    words = {
        "grouped": [*audit, str(grouped), "--group-field", "half"],
        "ordered": [*audit, str(ordered), "--score-anyway"],
        "quick": [*audit, plain, "--tests", "direction"],
        "reversal": [*audit, plain, other, "--tests", "reversal"],
        "combined": [*audit, plain, "--tests", "direction,adjacency,stratified"],
        "prove": ["prove", matrix, "--min-effect", "0.25"],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    shutil.copytree(pulse, folder / "quickstart")
    return folder


@pytest.fixture
def copied(reports, tmp_path):
    """Copies what `verify` needs of a report."""

    def copy(name):
        for file in (REPORT_NAME, ARCHIVE_NAME):
            shutil.copy(reports / name / file, tmp_path / file)
        return tmp_path

    return copy


@pytest.fixture
def forge(copied, capsys):
    """Change a report, mend its digests, verify it; returns what was printed."""

    def forged(name, change=None, arrays=None, *, flags=()):
        folder = copied(name)
        reseal(folder, change, arrays)
        capsys.readouterr()
        assert main(["verify", str(folder), *flags]) == 3
        return capsys.readouterr().out

    return forged


@pytest.mark.parametrize(
    "name",
    ["quickstart", "grouped", "ordered", "reversal", "combined", "prove", "quick"],
)
def test_honest_report_is_verified(reports, name, capsys):
    assert main(["verify", str(reports / name)]) == 0
    is_audit = name not in ("prove", "quickstart")
    again = "pre-tests were run again" if is_audit else "not run again (a report of"
    said = capsys.readouterr().out
    assert again in said
    assert name != "quickstart" or "verified, 36 tests recomputed" in said


def first(document, *, primary=True):
    """The first test of a report that decides, or that does not."""
    return next(
        row
        for row in document["results"]
        if row["primary"] == primary and "log10_p" in row
    )


def scaled(name):
    def change(document):
        first(document)[name] *= 1.001

    return change


def without(name):
    return lambda document: first(document).pop(name)


def beside(document):
    fields = {"verdict": "suspected", "p_adjusted": 1e-9}
    first(document, primary=False).update(fields)


def ranking(document):
    rows = (row for row in document["results"] if row["method"] == "min_k")
    next(rows)["verdict"] = "contaminated"


def local(document):
    first(document)["local"]["last_example"] -= 1


def screening(document):
    document["screening"][1]["by"] = 0.01


def pretests(document):
    for row in document["results"]:
        row["pretests"][0]["p_value"] = 0.987


def passed(document):
    for row in document["results"]:
        for test in row["pretests"]:
            test["passed"] = True
    first(document)["verdict"] = "inconclusive"


def failed(document):
    row = first(document)
    max(row["pretests"], key=lambda test: test["p_value"])["passed"] = False
    row["verdict"] = "invalid design"


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        *(
            (name, change, fault)
            for name in ("quick", "prove")
            for change, fault in (
                ({"p_value": "x"}, "p_value: expected a finite number, got 'x'"),
                ({"p_value": 10**400}, "p_value: expected a finite number"),
                ({"p_value": -0.5}, "p_value is -0.5, recomputed"),
                ({"n_orders": 0.5}, "n_orders: expected a whole number, got 0.5"),
                ({"guess": 1}, "unknown field 'guess'"),
                ({"method": "guess"}, "not recomputable (unknown test 'guess')"),
                ({"method": "min_k"}, "not recomputable (unknown test 'min_k')"),
            )
        ),
        *(
            ("quick", without(field), f"report.json.results[0]: no {field}")
            for field in ("log10_p", "p_value", "n_orders")
        ),
        # Nothing is drawn so often.
        *(
            (name, {field: 10**13}, f"{field} is 10000000000000, recomputed")
            for name in ("grouped", "reversal", "combined", "prove")
            for field in ("n_orders", "n_strata")
        ),
        *(
            ("combined", scaled(field), f"{field} is")
            for field in ("p_value", "effect", "mde", "p_adjusted")
        ),
        # However deep it lies.
        ("combined", {"p_value": 1e-33}, "p_value is 1e-33"),
        ("combined", {"p_floor": 1e-33}, "p_floor is 1e-33"),
        ("combined", beside, "verdict is 'suspected', recomputed None"),
        ("combined", beside, "p_adjusted is 1e-09, recomputed None"),
        ("quickstart", lambda d: d["results"].reverse(), "not recomputable"),
        ("quickstart", ranking, "verdict: expected null, got 'contaminated'"),
        ("reversal", screening, "screening[1].by is 0.01"),
        ("reversal", local, "local.last_example is"),
        ("grouped", lambda d: d["results"].pop(), "'1/codes' belongs to no result"),
        ("ordered", passed, "passed is True, recomputed False"),
        ("grouped", failed, "passed is False, recomputed True"),
        ("reversal", failed, "passed is False, recomputed True"),
    ],
)
def test_what_is_stated_and_does_not_follow_is_a_fault(forge, name, change, fault):
    """A change is a function, or other values of the first test that decides."""
    if isinstance(change, dict):
        assert fault in forge(name, lambda document: first(document).update(change))
    else:
        assert fault in forge(name, change)


def test_pretest_that_the_file_does_not_have_is_found(forge):
    said = forge("quick", pretests)
    assert "pydocs-50: pre-tests[0].p_value is 0.987, recomputed" in said


def change_a_pair(arrays):
    arrays["0/pairs"][0, 0, 1] += 9.0


def raise_all_pairs(arrays):
    """Nothing that follows from a pair test is another number."""
    for name, pairs in arrays.items():
        if name.endswith("pairs"):
            arrays[name] = np.where(pairs == 0, 0, pairs + 1)


def score_a_pair_more(arrays):
    pairs = arrays["0/pairs"]
    pairs[tuple(np.argwhere(np.isnan(pairs))[0])] = -3.0


def leave_out_a_pair(arrays):
    arrays["0/pairs"][0, 1, 2] = np.nan


def turn_other_runs(arrays):
    arrays["0/runs"][0, :2] = arrays["0/runs"][0, ::-1][:2]


def make_a_group(arrays):
    arrays["0/codes"][0, 0] = 1


def flip(name):
    """What changes one entry: of a pair matrix, whose first is 0, one that counts."""

    def change(arrays):
        arrays[name].flat[min(1, arrays[name].size - 1)] += 1

    return change


@pytest.mark.parametrize(
    ("name", "arrays", "fault"),
    [
        ("quick", change_a_pair, "p_value is"),
        ("quick", score_a_pair_more, "pairs are not those that tell the direction"),
        ("quick", leave_out_a_pair, "pairs are not those that tell the direction"),
        ("quick", turn_other_runs, "runs: not what the seed and the file draw"),
        ("quick", make_a_group, "codes: not what the seed and the file draw"),
        *(
            ("combined", flip(name), "")
            for name in (*("0/pairs", "0/orders", "0/codes"), *("2/scores", "2/place"))
        ),
    ],
)
def test_changed_evidence_is_found(forge, name, arrays, fault):
    assert fault in forge(name, None, arrays)


def test_any_changed_byte_under_the_old_seal_is_found(copied):
    folder = copied("combined")
    path, archive = folder / REPORT_NAME, folder / ARCHIVE_NAME
    text = path.read_text()
    digest = json.loads(text)["digest"]
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    changed = [
        text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        for i in np.random.default_rng(0).choice(digits, 4, replace=False).tolist()
    ]
    # The same values, and the digest twice.
    changed.append(text.replace('"min_effect": 0.5', '"min_effect": 0.50'))
    changed.append(text.replace("\n", "\r\n"))
    changed.append(text.replace('"name": "', f'"name": "{digest}', 1))
    for one in changed:
        path.write_bytes(one.encode())
        assert one != text and main(["verify", str(folder)]) in (2, 3)
    path.write_text(text)
    archive.write_bytes(archive.read_bytes()[:-100])
    assert main(["verify", str(folder)]) == 3


def test_pretests_of_a_file_that_is_not_at_hand_are_said_not_to_be_run(copied, capsys):
    folder = copied("quick")
    wrong = folder / "pydocs-50.txt"
    # Tasks run code, and servers get keys: a report's word for them is not followed.
    for place, said in (
        (str(wrong), f"{wrong}: no such file)"),
        ("lm_eval:gsm8k",) * 2,
    ):
        reseal(
            folder, lambda document, to=place: document["command"].__setitem__(2, to)
        )
        capsys.readouterr()
        assert main(["verify", str(folder)]) == 0
        assert f"pre-tests were not run again ({said}" in capsys.readouterr().out
    wrong.write_text("one\ntwo\nthree\n")
    assert main(["verify", str(folder), "--benchmark", str(wrong)]) == 2
    assert "pydocs-50: not the file of the report" in capsys.readouterr().err


def test_a_model_that_is_asked_again_agrees(reports, pulse, capsys):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]
    for name in ("quick", "reversal", "combined"):
        assert main(["verify", str(reports / name), *flags]) == 0
        assert "random rows again" in capsys.readouterr().out


def test_scores_that_the_model_does_not_give_are_found(forge, pulse):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]
    found = forge("quick", None, raise_all_pairs, flags=flags)
    assert "direction: pairs: " in found
    assert "scores differ from the model's, by up to 1 nats" in found


def test_another_name_of_the_model_is_found_by_asking_it(forge, pulse):
    flags = ["--rescore", "1", "--model", str(pulse / "model")]
    said = forge("quick", lambda d: d["model"].update(name="another"), flags=flags)
    assert "model_name is 'another', the model's is" in said
