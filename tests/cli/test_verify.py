"""What `verify` finds: changed bytes, and under a mended seal what does not follow."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import ARCHIVE_NAME, REPORT_NAME
from tests.support.forged import reseal
from tests.support.labelled_rows import write_lines

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
    both = ("--tests", "direction,adjacency")
    plain, other = (str(pulse / f"sets/pydocs-{name}.txt") for name in ("50", "0a"))
    words = {
        "grouped": [*audit, str(grouped), "--group-field", "half", *both],
        "ordered": [*audit, str(ordered), "--order", "anyway"],
        "quick": [*audit, plain, "--tests", "direction"],
        "reversal": [*audit, plain, other, "--tests", "reversal"],
        "combined": [*audit, plain, "--tests", "direction,adjacency,stratified"],
        "prove": ["prove", matrix, "--min-effect", "0.25"],
    }
    words |= words_of_versions(folder, str(pulse / "model"))
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    shutil.copytree(pulse, folder / "quickstart")
    return folder


LETTERS = [*"abcdefghijklmnopqrstuvwxyz"]
VERSIONS = {"canary": 4, "variants": 1, "options": 1}
"""Kind of test of versions -> how many its report has."""


def words_of_versions(folder, model):
    """Commands that test canaries, variants and answer options of random letters."""
    rng = np.random.default_rng(0)

    def letters(n):
        return " ".join(rng.choice(LETTERS, n))

    secret, held_out = folder / "s.txt", folder / "h.txt"
    for path, n in ((secret, 3), (held_out, 31)):
        path.write_text("".join(f"{letters(9)}\n" for _ in range(n)))
    rows = [
        {"text": letters(5), "variants": [letters(4) for _ in range(1 + i % 3)]}
        for i in range(15)
    ]
    variants = write_lines(folder / "v.jsonl", rows)
    rows = [
        {
            "q": f"Which {i}?",
            # No two items share options.
            "choices": [
                f"{c}{i}" for c in rng.choice(LETTERS, 3 + i % 3, replace=False)
            ],
            "answer": int(rng.integers(3)),
        }
        for i in range(25)
    ]
    items = write_lines(folder / "mc.jsonl", rows)
    files = ["--secret", str(secret), "--held-out", str(held_out)]
    return {
        "canary": ["canary", model, *files],
        "variants": ["variants", model, str(variants), "--randomised"],
        "options": ["audit", model, str(items), "--tests", "options:4"],
    }


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
    [
        *("quickstart", "grouped", "ordered", "reversal", "combined", "prove", "quick"),
        *VERSIONS,
    ],
)
def test_honest_report_is_verified(reports, name, capsys):
    assert main(["verify", str(reports / name)]) == 0
    said = capsys.readouterr().out
    is_audit = name not in ("prove", "quickstart", "canary", "variants")
    again = "pre-tests were run again" if is_audit else "not run again (a report of"
    assert name in ("canary", "variants") or again in said
    if n := {"quickstart": 36, **VERSIONS}.get(name):
        assert f"verified, {n} test{'s' * (n > 1)} recomputed" in said


def edit(code):
    """What changes a report: `row` is its first test that decides, `beside` another."""

    def change(report):
        rows = report["results"]
        tests = [one for one in rows if "log10_p" in one]
        row = next(one for one in tests if one["primary"])
        beside = next((one for one in tests if not one["primary"]), None)
        exec(code, {"report": report, "rows": rows, "row": row, "beside": beside})

    return change


PASS_ALL = """
for one in rows:
    for test in one["pretests"]:
        test["passed"] = True
row["verdict"] = "inconclusive"
"""
FAIL_ONE = """
max(row["pretests"], key=lambda test: test["p_value"])["passed"] = False
row["verdict"] = "invalid design"
"""


@pytest.mark.parametrize(
    ("name", "code", "fault"),
    [
        *(
            (name, f"row[{field!r}] = {value!r}", fault)
            for name in ("quick", "prove")
            for field, value, fault in (
                ("p_value", "x", "p_value: expected a finite number, got 'x'"),
                ("p_value", 10**400, "p_value: expected a finite number"),
                ("p_value", -0.5, "p_value is -0.5, recomputed"),
                ("n_orders", 0.5, "n_orders: expected a whole number, got 0.5"),
                ("guess", 1, "unknown field 'guess'"),
                ("method", "guess", "not recomputable (unknown test 'guess')"),
                ("method", "min_k", "not recomputable (unknown test 'min_k')"),
            )
        ),
        *(
            ("quick", f"del row[{field!r}]", f"report.json.results[0]: no {field}")
            for field in ("log10_p", "p_value", "n_orders")
        ),
        # Nothing is drawn so often.
        *(
            (name, f"row[{field!r}] += 10**13", f"{field} is 1000")
            for name in ("grouped", "reversal", "combined", "prove")
            for field in ("n_orders", "n_strata")
        ),
        *(
            ("combined", f"row[{field!r}] *= 1.001", f"{field} is")
            for field in ("p_value", "effect", "mde", "p_adjusted")
        ),
        # However deep it lies.
        ("combined", "row['p_value'] = 1e-33", "p_value is 1e-33"),
        *(
            (name, f"row[{field!r}] = {value!r}", f"{field} is {value!r}")
            for name in VERSIONS
            for field, value in (
                *(("p_value", 1e-9), ("log10_p", -9.0), ("effect", 7.0)),
                ("verdict", "contaminated"),
            )
        ),
        ("canary", "rows[2]['exposure'] = 4.75", "exposure is 4.75"),
        ("combined", "row['p_floor'] = 1e-33", "p_floor is 1e-33"),
        ("combined", "beside['verdict'] = 'suspected'", "'suspected', recomputed None"),
        ("combined", "beside['p_adjusted'] = 1e-9", "1e-09, recomputed None"),
        ("quickstart", "rows.reverse()", "not recomputable"),
        ("quickstart", "rows[-1]['verdict'] = 'suspected'", "verdict: expected null"),
        (
            "reversal",
            "report['screening'][1]['by'] = 0.01",
            "screening[1].by is 0.01",
        ),
        ("reversal", "row['local']['last_example'] -= 1", "local.last_example is"),
        ("grouped", "rows.pop()", "'1/codes' belongs to no result"),
        (
            "quick",
            "for one in rows: one['pretests'][0]['p_value'] = 0.987",
            "pydocs-50: pre-tests[0].p_value is 0.987, recomputed",
        ),
        ("ordered", PASS_ALL, "passed is True, recomputed False"),
        ("grouped", FAIL_ONE, "passed is False, recomputed True"),
        ("reversal", FAIL_ONE, "passed is False, recomputed True"),
    ],
)
def test_what_is_stated_and_does_not_follow_is_a_fault(forge, name, code, fault):
    assert fault in forge(name, edit(code))


PLACE = "place: not what the seed and the file draw"
PAIRS = "pairs are not those that tell the direction"


@pytest.mark.parametrize(
    ("name", "array", "code", "fault"),
    [
        ("quick", "0/pairs", "a *= -1", "p_value is"),
        ("quick", "0/pairs", "a[tuple(np.argwhere(np.isnan(a))[0])] = -3", PAIRS),
        ("quick", "0/pairs", "a[0, 1, 2] = np.nan", PAIRS),
        ("quick", "0/runs", "a[0, :2] = a[0, ::-1][:2]", "runs: not what the seed and"),
        ("quick", "0/codes", "a[0, 0] = 1", "codes: not what the seed and the file"),
        *(
            ("combined", name, "a.flat[1 % a.size] += 1", "")
            for name in (*("0/pairs", "0/orders", "0/codes"), *("2/scores", "2/place"))
        ),
        *((name, "0/scores", "a[:, 0] += 3.0", "p_value is") for name in VERSIONS),
        *((name, "0/place", "a[:] = 0", PLACE) for name in ("variants", "options")),
    ],
)
def test_changed_evidence_is_found(forge, name, array, code, fault):
    def change(arrays):
        exec(code, {"a": arrays[array], "np": np})

    assert fault in forge(name, None, change)


@pytest.mark.parametrize("command", ["verify", "report"])
def test_a_report_of_another_format_names_the_version_that_reads_it(
    copied, capsys, command
):
    folder = copied("options")
    reseal(folder, lambda document: document.update(schema=1, jaxcontam="0.1.0"))
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{REPORT_NAME}: a report of format 1 (this version reads 2)" in said
    assert "hint: jaxcontam 0.1.0 wrote it and can read it" in " ".join(said.split())


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
    for place in (str(wrong), "lm_eval:gsm8k"):
        reseal(folder, edit(f"report['command'][2] = {place!r}"))
        capsys.readouterr()
        assert main(["verify", str(folder)]) == 0
        said = f"pre-tests were not run again ({place}: no such file"
        assert said in capsys.readouterr().out
    wrong.write_text("one\ntwo\nthree\nfour\n")
    assert main(["verify", str(folder), "--benchmark", str(wrong)]) == 2
    assert "pydocs-50: not the file of the report" in capsys.readouterr().err


def test_a_model_that_is_asked_again_agrees(reports, pulse, capsys):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]
    for name in ("quick", "reversal", "combined"):
        assert main(["verify", str(reports / name), *flags]) == 0
        assert "random rows again" in capsys.readouterr().out


def test_scores_that_the_model_does_not_give_are_found(forge, pulse):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]

    def raise_all_pairs(arrays):
        """Nothing that follows from a pair test is another number."""
        for name in [name for name in arrays if name.endswith("pairs")]:
            arrays[name] = np.where(arrays[name] == 0, 0, arrays[name] + 1)

    found = forge("quick", None, raise_all_pairs, flags=flags)
    assert "direction: pairs: " in found
    assert "scores differ from the model's, by up to 1 nats" in found


def test_another_name_of_the_model_is_found_by_asking_it(forge, pulse):
    flags = ["--rescore", "1", "--model", str(pulse / "model")]
    said = forge("quick", edit("report['model']['name'] = 'another'"), flags=flags)
    assert "model_name is 'another', the model's is" in said
