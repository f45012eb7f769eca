"""What the canary study makes of scores and of reports, without any model."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from eval.canaries.__main__ import Canaries
from eval.canaries.ranking import rank
from eval.canaries.runs import CANARIES, copies_of, read_runs
from eval.canaries.tables import grids_of
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from train.plan import PlannedSet

N = 8
LONG = "one two three four five six seven eight nine ten number {}"


def made_row(name, copies, method, p, **changes):
    fields = {
        "benchmark": name,
        "copies": copies,
        "method": method,
        "p_value": p,
        "log10_p": float(np.log10(p)),
        "validity": "exact",
        "p_floor": 1e-40,
        "verdict": "contaminated" if p < 1e-3 else "inconclusive",
        "effect": 1.5,
        "effect_se": 0.25,
        "n_orders": 9,
        "primary": method == "direction",
    }
    return fields | changes


def report(folder, rows, *, model="sha256:a", name="a-model", ranked=()):
    folder.mkdir()
    document = {
        "schema": 1,
        "command": ["eval.canaries"],
        "model": {"name": name, "fingerprint": model, "n_parameters": 1_000},
        "results": rows,
        "study": {"n_tokens": 100, "canary_share": 0.25, "ranked": list(ranked)},
    }
    (folder / "report.json").write_text(json.dumps(document))
    return folder


def plan_rows(plan, method="adjacency", p=1e-9, **changes):
    return [
        row
        for name, copies in copies_of(plan).items()
        for row in (
            made_row(name, copies, method, p, **changes),
            made_row(f"{name}-held", 0, method, 0.5, **changes),
        )
    ]


def grid(runs, title):
    (found,) = (one for one in grids_of(runs) if title in one.title)
    return found


def column(found, word):
    (number,) = (i for i, name in enumerate(found.header) if word in name)
    return {row[0]: row[number] for row in found.rows}


def test_papers_figures_stand_only_beside_the_papers_copies(tmp_path):
    first = report(tmp_path / "a", plan_rows("published"))
    second = report(tmp_path / "b", plan_rows("lower"), model="sha256:b")
    runs = read_runs([first, second])
    assert [run.label for run in runs] == ["published", "lower"]
    quoted = column(grid(runs, "published: 1,000 parameters"), "paper")
    assert quoted == {name: one.sharded_p or "" for name, one in CANARIES.items()}
    assert "paper" not in " ".join(grid(runs, "lower: 1,000 parameters").header)


def test_the_test_that_decides_stands_first_with_its_verdict(tmp_path):
    decided = plan_rows("lower", "direction", 1e-5, verdict="suspected")
    rows = [*plan_rows("lower", "adjacency"), *decided]
    runs = read_runs([report(tmp_path / "a", rows)])
    assert runs[0].methods == ["direction", "adjacency"]
    orders = grid(runs, "p-values of the planted sets")
    assert "Verdict: direction" in orders.title
    assert set(column(orders, "verdict").values()) == {"suspected"}
    controls = grid(runs, "later lines of the same files, which were not planted")
    assert column(controls, "verdict")["piqa-held"] == "suspected"
    assert controls.header[-2:] == ("direction", "adjacency")


def test_other_copies_have_no_plan_and_the_models_name(tmp_path):
    folder = report(tmp_path / "a", [made_row("mine", 3, "adjacency", 0.01)])
    (run,) = read_runs([folder])
    assert (run.plan, run.label) == (None, "a-model")


def test_reports_of_one_model_are_joined_and_the_first_counts(tmp_path):
    first = report(tmp_path / "a", plan_rows("lower", p=1e-9))
    second = report(
        tmp_path / "b",
        [
            *plan_rows("lower", p=1e-3),
            *plan_rows("lower", "permutation", 0.05, n_orders=19),
        ],
    )
    (run,) = read_runs([first, second])
    assert run.methods == ["adjacency", "permutation"]
    assert run.tests["piqa", "adjacency"]["p_value"] == 1e-9
    assert run.tests["piqa", "permutation"]["p_value"] == 0.05


def test_two_models_of_one_plan_are_told_apart(tmp_path):
    runs = read_runs(
        [
            report(tmp_path / "a", plan_rows("lower")),
            report(tmp_path / "b", plan_rows("lower"), model="sha256:b"),
        ]
    )
    assert [run.label for run in runs] == ["lower", "lower 2"]


def test_shares_count_sets_and_name_no_level_below_the_floor(tmp_path):
    rows = plan_rows("published", "permutation", 0.05, p_floor=0.05, n_orders=19)
    (run,) = read_runs([report(tmp_path / "a", rows)])
    (cells,) = grid([run], "95 % Wilson").rows
    assert cells == (
        "permutation",
        # Wilson's interval of 10 of 10 and of 0 of 10.
        "10 of 10 (0.72 to 1.00)",
        "-",
        "0 of 10 (0.00 to 0.28)",
        "-",
    )


def test_runs_stand_beside_each_other_by_set(tmp_path):
    ranked = {"benchmark": "piqa", "auc_unseen": 0.75, "blind_auc": None}
    runs = read_runs(
        [
            report(tmp_path / "a", plan_rows("published")),
            report(tmp_path / "b", plan_rows("lower"), model="sha256:b"),
        ]
    )
    runs = [dataclasses.replace(run, ranked={}) for run in runs]
    (beside,) = (one for one in grids_of(runs) if "each other" in one.title)
    assert column(beside, "published: copies")["piqa"] == "50"
    assert column(beside, "lower: copies")["piqa"] == "7"
    with_auc = dataclasses.replace(runs[1], ranked={"piqa": ranked | _AUC})
    beside = next(
        one for one in grids_of([runs[0], with_auc]) if "each other" in one.title
    )
    assert column(beside, "lower: AUC")["piqa"] == "0.75"
    assert column(beside, "published: AUC")["piqa"] == ""


_AUC = {
    "copies": 7,
    "auc": 0.8,
    "auc_low": 0.7,
    "auc_high": 0.9,
    "auc_unseen_low": 0.6,
    "auc_unseen_high": 0.9,
    "n_seen": 1,
    "n_later": 200,
}


def with_seen(folder, n_seen):
    """A report of which the control of `mnli` has so many lines that were planted."""
    row = made_row("mnli", 10, "min_k", 0.5, auc=0.5, reference=["mnli-held"])
    ranked = _AUC | {"benchmark": "mnli", "auc_unseen": 0.7, "blind_auc": None}
    return report(
        folder,
        [*plan_rows("published"), row],
        ranked=[ranked | {"n_seen": n_seen}],
    )


def test_controls_say_how_many_of_their_lines_training_read(tmp_path):
    runs = read_runs([with_seen(tmp_path / "a", 147)])
    controls = grid(runs, "later lines of the same files, which were not planted")
    seen = column(controls, "seen")
    assert seen.pop("mnli-held") == "147 of 200"
    assert set(seen.values()) == {""}


@pytest.mark.parametrize(("n_seen", "n_controls"), [(10, 10), (11, 9)])
def test_controls_of_which_much_was_read_are_in_no_count(tmp_path, n_seen, n_controls):
    """At most 5 % of 200 lines is 10."""
    runs = read_runs([with_seen(tmp_path / "a", n_seen)])
    found = grid(runs, "95 % Wilson interval over sets")
    (cells,) = found.rows
    assert cells[1].startswith("10 of 10") and cells[3].startswith(f"0 of {n_controls}")
    assert ("mnli-held" in found.title) == (n_controls < 10)


def test_what_was_seen_is_known_of_joined_reports(tmp_path):
    old = report(tmp_path / "a", plan_rows("published"))
    (run,) = read_runs([old, with_seen(tmp_path / "b", 147)])
    assert run.seen == {"mnli-held": (147, 200)}


@pytest.mark.parametrize(
    ("mode", "change", "flag"),
    [
        ("trained", {"dup_counts": "lower"}, "--dup-counts"),
        ("trained", {"limit": 20}, "--limit"),
        ("trained", {"preset": "pulse"}, "--preset"),
        ("trained", {"background_tokens": 9}, "--background-tokens"),
        ("trained", {"canaries": Path()}, "--canaries"),
        ("tables", {"seed": 1}, "--seed"),
        ("tables", {"limit": 20}, "--limit"),
        ("tables", {"tiny": True}, "--tiny"),
        ("tables", {"n_permutations": 0}, "--n-permutations"),
    ],
)
def test_flags_that_would_change_nothing_are_refused(tmp_path, mode, change, flag):
    given = {
        "trained": {"trained": tmp_path},
        "tables": {"tables": (tmp_path,)},
    }[mode]
    message = f"^{flag} changes nothing with --{mode}$"
    with pytest.raises(InputError, match=message):
        Canaries(**given, **change)


def test_no_kind_of_run_writes_over_another_kind_by_default(tmp_path):
    texts = {"corpus": (tmp_path,), "canaries": tmp_path}
    folders = [
        Canaries(**texts).folder,
        Canaries(**texts, tiny=True).folder,
        Canaries(trained=tmp_path / "a").folder,
        Canaries(trained=tmp_path / "b").folder,
        Canaries(tables=(tmp_path,)).folder,
    ]
    assert len(set(folders)) == 5
    assert Canaries(tables=(tmp_path,), out=tmp_path).folder == tmp_path


@pytest.mark.parametrize("fault", ["command", "study", "rows", "nothing"])
def test_folder_without_a_report_of_this_study_is_refused(tmp_path, fault):
    folder = report(tmp_path / "a", plan_rows("lower"))
    path = folder / "report.json"
    document = json.loads(path.read_text())
    if fault == "command":
        path.write_text(json.dumps(document | {"command": ["audit"]}))
    elif fault == "study":
        path.write_text(json.dumps(document | {"study": None}))
    elif fault == "rows":
        path.write_text(json.dumps(document | {"results": []}))
    else:
        path.unlink()
    message = {
        "command": "not a report of eval.canaries",
        "study": "lacks",
        "rows": "has no order test",
        "nothing": "no report",
    }[fault]
    with pytest.raises(InputError, match=message):
        Canaries(tables=(folder,), out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_tables_of_finished_studies_need_no_model(tmp_path):
    first = report(tmp_path / "a", plan_rows("published"))
    second = report(tmp_path / "b", plan_rows("lower"), model="sha256:b")
    out = tmp_path / "out"
    document = Canaries(tables=(first, second), out=out).run()
    assert [run["label"] for run in document["runs"]] == ["published", "lower"]
    assert json.loads((out / "canaries.json").read_text()) == document


def test_tables_and_a_given_run_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="exclude each other"):
        Canaries(tables=(tmp_path,), trained=tmp_path)


def encoded(ids):
    return Encoded(
        ids=tuple(np.array(row, np.int32) for row in ids),
        separator=np.array([9], np.int32),
        n_cut_ids=np.zeros(len(ids), np.int32),
    )


def sets(planted, later):
    return (
        PlannedSet(benchmark=Benchmark("a", tuple(planted), (None,) * N), copies=4),
        PlannedSet(benchmark=Benchmark("a-held", tuple(later), (None,) * N), copies=0),
    )


def ranked(scores, *, planted=None, later=None, ids=None):
    planted = planted or [LONG.format(i) for i in range(N)]
    later = later or [f"other line {i}" for i in range(N)]
    ids = ids or ([[1, i] for i in range(N)], [[2, i] for i in range(N)])
    return rank(
        *sets(planted, later),
        scores=tuple(np.array(side, float) for side in scores),
        encoded=tuple(map(encoded, ids)),
        read=lambda rows: [str(row.tolist()) for row in rows],
        seed=0,
    )


def test_planted_lines_above_all_others_rank_perfectly():
    found = ranked((range(N, 2 * N), range(N)))
    assert found.auc == found.auc_unseen == 1.0
    # Too few lines for the blind classifiers.
    assert found.blind_auc is None
    assert (found.n_planted, found.n_later, found.n_seen, found.copies) == (N, N, 0, 4)


def test_constant_score_ranks_at_chance():
    found = ranked(([0.0] * N, [0.0] * N))
    assert found.auc == 0.5
    assert found.auc_low < 0.5 < found.auc_high


def test_later_lines_that_were_planted_too_are_counted_and_left_out():
    """They score as planted lines do, and hide what the others show."""
    later = [LONG.format(i) if i < 3 else f"other line {i}" for i in range(N)]
    scores = (range(N, 2 * N), [2.0 * N] * 3 + [0.0] * (N - 3))
    found = ranked(scores, later=later)
    assert (found.n_seen, found.auc_unseen) == (3, 1.0)
    assert found.auc == pytest.approx((N - 3) / N)


def test_later_lines_that_read_the_same_after_the_cut_were_seen():
    """Whatever stood behind the cut, training saw these very ids."""
    ids = ([[1, i] for i in range(N)], [[1, i] if i < 2 else [2, i] for i in range(N)])
    assert ranked((range(N), range(N)), ids=ids).n_seen == 2


def test_file_whose_later_lines_were_all_seen_has_no_other_figure():
    same = [[1, i] for i in range(N)]
    found = ranked((range(N), range(N)), ids=(same, same))
    assert (found.auc, found.n_seen, found.auc_unseen) == (0.5, N, None)


def test_lines_that_read_the_same_count_as_one():
    """Eight copies of one line are one line, whatever eight scores they have."""
    apart = ranked((range(N), range(4, N + 4)))
    same = ([[1, i // 4] for i in range(N)], [[2, i // 4] for i in range(N)])
    joined = ranked((range(N), range(4, N + 4)), ids=same)
    assert joined.auc == apart.auc
    assert joined.auc_se > apart.auc_se
