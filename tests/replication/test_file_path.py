"""Path probe: issues with their file, a control, an exact test."""

import dataclasses
import json

import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.replication.design import ReplicationDesign, plan_replication
from jaxcontam.replication.hidden import file_path, read_issues
from jaxcontam.replication.run import ask
from jaxcontam.scoring.completer import Completion, is_answer, readings
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.prompted_model import PromptedModel
from jaxcontam.stats.proportions import rate_test
from tests.support.completers import Scripted, comparison_inputs


def patch_of(*files):
    return "".join(
        f"diff --git a/{f} b/{f}\n--- a/{f}\n+++ b/{f}\n@@ -1 +1 @@\n--- a\n+b\n"
        for f in files
    )


def rows_of(n, folder, repo="a/b"):
    return [
        {
            "repo": repo,
            "problem_statement": f"{folder} {i}: it fails",
            "patch": patch_of(f"{folder}/part_{i}.py"),
        }
        for i in range(n)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def issues_of(tmp_path, rows):
    return read_issues(load_benchmark(write(tmp_path / "issues.jsonl", rows)))


def probe(issues, control, answer):
    """The row where a function of an issue's text answers, and the rows of texts."""

    def answered(prompt, *_):
        return answer(prompt.split("\n\n", 1)[1].removesuffix("\n\nFile:"))

    asked = {"issues": tuple(issues), "control_issues": tuple(control)}
    return file_path(comparison_inputs(Scripted(answered), **asked))


def test_issues_that_name_their_file_or_change_several_are_left_out(tmp_path):
    rows = [
        *rows_of(1, "src"),
        {"problem_statement": "see Part.py", "patch": patch_of("src/part.py")},
        {"problem_statement": "both", "patch": patch_of("a.py", "b.py")},
        {"problem_statement": "new", "patch": "--- /dev/null\n+++ b/new.py\n"},
        {"issue": "no repository", "file": "lib/c.py"},
        {"issue": "no repository", "file": "lib/c.py"},
        {"issue": "no file"},
    ]
    first, second = issues_of(tmp_path, rows)
    assert (first.index, first.file) == (0, "src/part_0.py")
    assert first.text == "Repository: a/b\n\nsrc 0: it fails"
    assert (second.index, second.text) == (4, "no repository")


def test_files_known_by_heart_are_told_from_those_of_a_control(tmp_path):
    issues, control = (issues_of(tmp_path, rows_of(20, f)) for f in ("src", "new"))
    known = {one.text: one.file for one in (*issues[:15], *control[:2])}

    def answer(text):
        if text == issues[19].text:
            return Completion(text="", refused="no")
        return f"File: `{known.get(text, 'src/other.py')}`"

    found, rows = probe(issues, control, answer)
    assert (found.n_found, found.n_instances, found.n_refused) == (15, 20, 1)
    assert (found.n_control_found, found.n_control) == (2, 20)
    # Whole numbers here, floats there.
    fisher = rate_test(15, 20, 2, 20).fisher
    assert found.p_control == pytest.approx(fisher, rel=1e-12) and fisher < 1e-4
    assert found.verdict == "suspected" and len(rows) == 40
    alone, _ = probe(issues, (), answer)
    assert (alone.verdict, alone.p_control, alone.n_found) == (None, None, 15)
    assert "no control" in alone.warnings[-1]
    alike, _ = probe(issues[15:19], control[2:], answer)
    assert (alike.verdict, alike.p_control) == ("no evidence", 1.0)
    easy, _ = probe(issues[:5], issues[5:15], answer)
    assert (easy.verdict, easy.p_control) == ("inconclusive", 1.0)


@pytest.mark.parametrize(
    ("n_each", "p_value", "verdict"),
    [(2, 1 / 6, "inconclusive"), (5, 1 / 252, "suspected")],
)
def test_repositories_change_sides_whole(tmp_path, n_each, p_value, verdict):
    """All files of the benchmark's repositories are named, none of the control's."""
    issues, control = (
        issues_of(
            tmp_path,
            [one for i in range(n_each) for one in rows_of(8, f"{s}{i}", f"{s}/{i}")],
        )
        for s in ("src", "new")
    )
    known = {one.text: one.file for one in issues}
    found, _ = probe(issues, control, lambda text: known.get(text, "src/other.py"))
    # Choices of repositories: 4 standard errors of 9,999 draws.
    error = 4 * (p_value / 9999) ** 0.5 + 1e-4
    assert found.p_control == pytest.approx(p_value, abs=error)
    assert found.verdict == verdict
    unnamed = (
        [dataclasses.replace(one, repository="") for one in side]
        for side in (issues, control)
    )
    alone, _ = probe(*unnamed, lambda text: known.get(text, "src/other.py"))
    assert alone.p_control < 1e-6
    for one, said in ((found, False), (alone, True)):
        words = "takes issues as independent"
        assert any(words in warning for warning in one.warnings) == said


@pytest.mark.parametrize(
    ("refused", "verdict"),
    [((70, 0), "no evidence"), ((0, 200), "inconclusive"), ((198, 0), "inconclusive")],
)
def test_refusals_never_make_a_suspicion(tmp_path, refused, verdict):
    """Sixty of two hundred are named on either side, had all been answered."""
    sides = [issues_of(tmp_path, rows_of(200, f)) for f in ("src", "new")]
    answers = {}
    for issues, n_refused in zip(sides, refused, strict=True):
        for i, one in enumerate(issues):
            answers[one.text] = one.file if i < 60 else "src/other.py"
            if i >= len(issues) - n_refused:
                answers[one.text] = Completion(text="", refused="no")
    found, _ = probe(*sides, answers.get)
    assert (found.n_refused, found.n_control_refused) == refused
    assert f"; {refused[0]} refused, taken as misses, and {refused[1]}" in found.finding
    assert found.verdict == verdict and (found.p_control or 0) >= 0.5
    assert not any("no control" in words for words in found.warnings)


def test_a_path_is_read_from_what_models_put_around_it():
    right = ("./src/a.py", "/src/a.py", "- src/a.py", "The file is src/a.py.")
    for answer in (*right, "It is src/a.py or src/b.py", "lib/src/a.py"):
        assert is_answer("src/a.py", readings(answer)) == (answer in right), answer


def test_call_asks_for_the_files_of_both_sides_but_for_issues_of_both(tmp_path):
    own, new = (
        write(tmp_path / f"{name}.jsonl", [*rows_of(12, name), *rows_of(2, "both")])
        for name in ("src", "new")
    )
    flags = {"text_field": "problem_statement", "compare": "file_path", "k": 10}
    design = ReplicationDesign(control=new, task="plain", **flags)
    plan = plan_replication(own, design)
    assert any("2 issues stand in both files" in words for words in plan.warnings)
    asked = [one.text for one in (*plan.issues, *plan.control_issues)]
    assert len(asked) == 20 and not any("both" in text for text in asked)
    info = dict.fromkeys(("n_parameters", "context"))
    info |= dict.fromkeys(("name", "fingerprint", "dtype", "precision"), "m")
    model = Scripted(lambda prompt, *_: "src/part_3.py")
    model = PromptedModel(name="m", completer=model, info=ModelInfo(**info))
    found = ask(plan, model)
    (row,) = found.comparisons
    assert (row.method, row.n_instances, row.n_control) == ("file_path", 10, 10)
    assert row.n_found <= 1 and row.n_control_found == 0 and (row.p_control or 0) >= 0.5
    found.written(tmp_path / "out")
    assert row.finding in (tmp_path / "out" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "out")]) == 0
