"""LiRA's ratio, its rates with two-way intervals, and the study in its pulse size."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import eval.lira.__main__ as command
from eval.lira.__main__ import TINY, Lira, read_record, write_record
from eval.lira.found import ONLINE, TINY_ANALYSIS, found_of
from eval.lira.rates import FPRS, rates_of
from eval.lira.ratio import (
    beside_others,
    beside_unread,
    enough_shadows,
    lira_scores,
    token_logit,
)
from eval.lira.shadows import (
    SCORE_NAMES,
    Job,
    Pool,
    Shadow,
    coins,
    draw_pool,
    read_texts,
    shadow_rows,
)
from eval.python_docs import PythonDocs, Question
from jaxcontam.errors import InputError
from jaxcontam.stats.roc import auc_delong, tpr_at_fpr
from train.population_workers import Failure

pytestmark = pytest.mark.unoptimised

N, E = 24, 30


def population(seed=0, *, n=N, e=E, shift=1.0):
    """Scores with a level of their own for each text, higher where it was read."""
    rng = np.random.default_rng(seed)
    read = rng.random((n, e)) < 0.5
    return rng.normal(shift * read + 2 * rng.normal(size=e)), read


def one_group(e=E):
    return np.ones(e, np.int64)


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_ratio_is_that_of_two_gaussians_fitted_to_the_other_models(kind):
    values, read = population()
    found = lira_scores(values, read, one_group(), kind=kind)
    for target, text in ((0, 0), (7, 3), (N - 1, E - 1)):
        others = np.delete(values[:, text], target)
        inside = np.delete(read[:, text], target)
        one, other = others[inside], others[~inside]
        value = values[target, text]
        out = stats.norm(other.mean(), other.std(ddof=1))
        if kind == "online":
            expected = stats.norm(one.mean(), one.std(ddof=1)).logpdf(value)
            expected -= out.logpdf(value)
        else:
            # 1 - Pr[Z > value] of the paper, which ranks alike.
            expected = stats.norm.ppf(out.cdf(value))
        # Float64 arithmetic of two dozen numbers.
        assert found[target, text] == pytest.approx(expected, rel=1e-6)


def test_one_variance_is_that_within_texts_of_a_group():
    values, read = population()
    group = np.arange(E) % 2
    found = lira_scores(values, read, group, pooled=True)
    others, inside = values[1:], read[1:]
    spread = {}
    for side in (True, False):
        mask = (inside == side)[:, group == 1]
        mean = others[:, group == 1].mean(axis=0, where=mask)
        squares = np.square(others[:, group == 1] - mean).sum(where=mask)
        spread[side] = np.sqrt(squares / (mask.sum(axis=0) - 1).sum())
    densities = [
        stats.norm(others[inside[:, 1] == side, 1].mean(), spread[side]).logpdf(
            values[0, 1]
        )
        for side in (True, False)
    ]
    assert found[0, 1] == pytest.approx(densities[0] - densities[1], rel=1e-6)


@pytest.mark.parametrize("kind", ["online", "offline"])
@pytest.mark.parametrize("pooled", [True, False])
def test_what_the_target_read_does_not_enter_its_scores(kind, pooled):
    values, read = population()
    other = read.copy()
    other[5] = ~other[5]
    found, again = (
        lira_scores(values, one, one_group(), kind=kind, pooled=pooled)
        for one in (read, other)
    )
    np.testing.assert_array_equal(found[5], again[5])
    assert not np.array_equal(found[6], again[6])


def test_ratio_reaches_the_best_that_can_be_done_and_the_score_alone_does_not():
    values, read = population(3, n=120, e=200)
    found = lira_scores(values, read, one_group(200), pooled=True)
    auc, se = auc_delong(found[read], found[~read])
    # N(1, 1) against N(0, 1): Phi(1 / sqrt 2) = 0.760 is the best; 60 shadows a side
    # move means by 0.13, which costs less than 0.01. Six errors of 24,000 pairs.
    assert 0.750 - 6 * se < auc < 0.760 + 6 * se
    # With levels of texts of variance 4 it is Phi(1 / sqrt 10) = 0.624.
    assert auc_delong(values[read], values[~read])[0] < 0.70


@pytest.mark.parametrize("kind", ["online", "offline"])
@pytest.mark.parametrize("pooled", [True, False])
def test_models_that_remember_nothing_are_at_chance(kind, pooled):
    values, read = population(4, n=40, e=200, shift=0.0)
    found = lira_scores(values, read, one_group(200), kind=kind, pooled=pooled)
    # 8,000 pairs; four errors of 0.0065. Scores of a text share their shadows, which
    # puts a little to it.
    assert auc_delong(found[read], found[~read])[0] == pytest.approx(0.5, abs=0.03)


def test_so_many_shadows_are_the_next_ones_half_of_which_read_the_text():
    values, read = population(5)
    assert enough_shadows(read, 8)
    few = lira_scores(values, read, one_group(), n_shadows=8)
    target, text = 20, 4
    order = (target + 1 + np.arange(N - 1)) % N
    inside = [i for i in order if read[i, text]][:4]
    outside = [i for i in order if not read[i, text]][:4]
    densities = [
        stats.norm(mine.mean(), mine.std(ddof=1)).logpdf(values[target, text])
        for mine in (values[inside, text], values[outside, text])
    ]
    assert few[target, text] == pytest.approx(densities[0] - densities[1], rel=1e-6)


def test_text_without_shadows_of_a_side_says_nothing():
    values, read = population(6)
    read[:, 2] = True
    read[:, 3] = False
    assert not enough_shadows(read, 4)
    for kind in ("online", "offline"):
        found = lira_scores(values, read, one_group(), kind=kind)
        assert np.isfinite(found).all()
        assert (found[:, 2] == 0).all()
    assert (lira_scores(values, read, one_group())[:, 3] == 0).all()
    assert (beside_unread(values, read)[:, 2] == 0).all()


@pytest.mark.parametrize("n_shadows", [2, 5])
def test_impossible_numbers_of_shadows_are_refused(n_shadows):
    values, read = population()
    with pytest.raises(ValueError, match="n_shadows must be even and at least 4"):
        lira_scores(values, read, one_group(), n_shadows=n_shadows)
    with pytest.raises(ValueError, match="models must be at least 3"):
        lira_scores(values[:2], read[:2], one_group())


def test_token_logit_is_the_logit_of_the_mean_probability_and_rises():
    mean = np.log([0.01, 0.5, 0.9])
    np.testing.assert_allclose(token_logit(mean), np.log([1 / 99, 1, 9]), atol=1e-12)
    assert np.isfinite(token_logit(np.array([0.0, -200.0]))).all()
    assert (np.diff(token_logit(np.linspace(-30, -1e-5, 400))) > 0).all()


def test_references_are_means_of_other_models():
    values, read = population(7)
    others = np.delete(values[:, 1], 9)
    unread = others[~np.delete(read[:, 1], 9)]
    assert beside_others(values)[9, 1] == pytest.approx(values[9, 1] - others.mean())
    assert beside_unread(values, read)[9, 1] == pytest.approx(
        values[9, 1] - unread.mean()
    )
    following = [i for i in (*range(10, N), *range(9)) if not read[i, 1]]
    assert beside_unread(values, read, n_references=1)[9, 1] == pytest.approx(
        values[9, 1] - values[following[0], 1]
    )


@pytest.mark.parametrize("digits", [12, 0])
def test_rates_are_those_of_all_pairs_with_ties_counted_alike(digits):
    values, read = population(8)
    scores = np.round(values, digits)
    found = rates_of({"s": scores}, read, n_boot=100, seed=0)["s"]
    members, others = scores[read], scores[~read]
    assert found.auc == pytest.approx(auc_delong(members, others)[0], abs=1e-12)
    for fpr, tpr in zip(FPRS, found.tpr, strict=True):
        assert tpr == tpr_at_fpr(members, others, fpr)[0]
    assert (found.n_members, found.n_nonmembers) == (len(members), len(others))
    assert found.auc_low < found.auc < found.auc_high


def test_constant_score_finds_nothing():
    _, read = population()
    found = rates_of({"s": np.zeros((N, E))}, read, n_boot=100, seed=0)["s"]
    assert (found.auc, found.auc_low, found.auc_high) == (0.5, 0.5, 0.5)
    assert set((*found.tpr, *found.tpr_high)) == {0.0}


def test_interval_holds_the_mean_of_the_auc_where_targets_and_texts_vary():
    rng = np.random.default_rng(9)
    found = []
    n, e, n_trials = 12, 16, 150
    for trial in range(n_trials):
        read = rng.random((n, e)) < 0.5
        levels = rng.normal(size=(n, 1)) + rng.normal(size=e)
        scores = read + levels + rng.normal(size=(n, e))
        found.append(rates_of({"s": scores}, read, n_boot=100, seed=trial)["s"])
    mean = np.mean([one.auc for one in found])
    held = np.mean([one.auc_low <= mean <= one.auc_high for one in found])
    # Nominal 0.95, and the pigeonhole bootstrap errs to the wide side; percentiles of
    # few targets to the narrow one. 3.3 standard errors of 150 trials are 0.059.
    assert held >= 0.95 - 0.059


def test_score_is_not_behind_itself_and_differences_use_the_same_resamples():
    values, read = population(10)
    scores = {"best": values + read, "same": values + read, "worse": values}
    found = rates_of(scores, read, n_boot=100, seed=0, best="best")
    for name in ("best", "same"):
        one = found[name]
        assert (one.behind, one.behind_low, one.behind_high) == (0.0, 0.0, 0.0)
    worse = found["worse"]
    assert worse.behind == pytest.approx(found["best"].auc - worse.auc)
    assert 0 < worse.behind_low < worse.behind < worse.behind_high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_boot": 99}, "n_boot must be at least 100"),
        ({"read_NE": np.ones((N, E), bool)}, "members and non-members"),
        ({"scores": {"s": np.full((N, E), np.nan)}}, "s must be .* finite scores"),
        ({"scores": {"s": np.zeros((N, E + 1))}}, "s must be .* finite scores"),
    ],
)
def test_rates_refuse_what_they_cannot_judge(change, message):
    values, read = population()
    given = {"scores": {"s": values}, "read_NE": read, "n_boot": 100, "seed": 0}
    with pytest.raises(ValueError, match=message):
        rates_of(**(given | change))


def test_coins_are_fair_and_those_of_two_models_have_nothing_in_common():
    thrown = np.stack([coins(400, seed=seed) for seed in range(40)])
    # 16,000 coins and 780 pairs of models; four standard errors each.
    assert thrown.mean() == pytest.approx(0.5, abs=4 * 0.5 / 16_000**0.5)
    alike = np.corrcoef(thrown)[np.triu_indices(40, 1)]
    assert abs(alike.mean()) < 4 / (780 * 400) ** 0.5
    np.testing.assert_array_equal(coins(400, seed=3), thrown[3])


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")


def made_up_job():
    rng = np.random.default_rng(11)
    sentences = [" ".join(rng.choice(WORDS, 6)) for _ in range(1800)]
    return Job(
        design=TINY,
        pool_seed=0,
        documents=tuple(" ".join(sentences[i : i + 9]) for i in range(0, 1800, 9)),
        questions=tuple(f"{i} {sentences[i]}" for i in range(40)),
    )


def test_a_model_reads_its_texts_so_many_times_and_no_other_one():
    job = made_up_job()
    texts = read_texts(job)
    pool = draw_pool(job, texts)
    assert len(set(pool.texts)) == TINY.n_examples * len(TINY.copies)
    read = coins(len(pool.texts), seed=5)
    rows, n_planted = shadow_rows(TINY, texts, pool, read, seed=5)
    assert rows.shape == (
        TINY.n_steps * TINY.preset.batch_rows,
        TINY.preset.context + 1,
    )
    # Texts begin with numbers, which stand in no document.
    expected = sum(
        copies * len(ids)
        for copies, ids, mine in zip(pool.copies, pool.ids, read, strict=True)
        if mine
    )
    assert n_planted == expected
    targets = rows[:, 1:].tolist()
    decoded = " ".join(texts.tokenizer.decode_batch(targets))
    for text, ids, copies, mine in zip(
        pool.texts, pool.ids, pool.copies.tolist(), read, strict=True
    ):
        shown = texts.tokenizer.decode(ids.tolist()).strip()
        assert text.startswith(shown[:8])
        # Rows cut through some copies.
        assert decoded.count(shown) <= (copies if mine else 0)


def shadows(n=8, e=24):
    values, read = population(12, n=n, e=e)
    return [
        Shadow(
            seed=i,
            read=read[i],
            values=np.repeat(values[i][:, None] - 9, len(SCORE_NAMES), axis=1),
            loss=1.0,
            n_planted=1,
            cpu_seconds=1.0,
        )
        for i in range(n)
    ]


def test_every_score_is_judged_at_every_number_of_copies():
    texts = tuple(f"{i} {word} {word}" for i, word in enumerate(WORDS * 3))[:24]
    pool = Pool(texts, (), np.repeat([1, 4], 12))
    found = found_of(shadows(), pool, TINY_ANALYSIS, seed=0)
    rows = {(row.score, row.copies): row.rates for row in found.rows}
    assert {copies for _, copies in rows} == {1, 4}
    assert {name for name, _ in rows} > {*SCORE_NAMES, ONLINE, "blind: length"}
    assert rows[ONLINE, 1].n_targets == 8 and rows["blind: length", 1].n_targets == 1
    assert rows["loss", 1].auc == rows["min_k", 1].auc
    all_shadows = {row.n_shadows for row in found.shadows}
    assert max(all_shadows) == 7


def test_record_of_other_inputs_is_not_taken(tmp_path):
    path, (shadow, *_) = tmp_path / "1.npz", shadows()
    write_record(path, "digest", "code", shadow)
    found = read_record(path, "digest", "code")
    np.testing.assert_array_equal(found.values, shadow.values)
    np.testing.assert_array_equal(found.read, shadow.read)
    assert (found.seed, found.loss) == (shadow.seed, shadow.loss)
    assert read_record(path, "digest", None) is not None
    assert read_record(path, "other", None) is None
    assert read_record(path, "digest", "other") is None
    write_record(path, "digest", None, shadow)
    assert read_record(path, "digest", "") is None
    path.write_bytes(path.read_bytes()[:-99])
    assert read_record(path, "digest", None) is None
    assert read_record(tmp_path / "2.npz", "digest", None) is None


def test_pulse_run_leaves_tables_and_does_not_train_again(tmp_path, monkeypatch):
    job = made_up_job()
    docs = PythonDocs(job.documents, tuple(Question(q, "x") for q in job.questions))
    monkeypatch.setattr(command, "read_python_docs", lambda: docs)
    monkeypatch.setattr(command, "code_version", lambda: "a commit")
    judged = []

    def judge(shadows, *rest, **more):
        judged.append(shadows)
        if len(judged) == 1:
            judge.found = found_of(shadows, *rest, **more)
        return judge.found

    monkeypatch.setattr(command, "found_of", judge)
    flags = {"models": 6, "processes": 1, "out": tmp_path, "tiny": True}
    document = Lira(**flags).run()
    # What a full run leaves in the same folder is not written over.
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    out = tmp_path / "tiny"
    assert json.loads((out / "lira.json").read_text()) == json.loads(
        json.dumps(document)
    )
    assert {"lira.md", "lira-auc.svg", "lira-tpr.svg", "lira-shadows.svg"} <= {
        path.name for path in out.iterdir()
    }
    for row in document["rows"]:
        one = row["rates"]
        assert 0 <= one["auc_low"] <= one["auc"] <= one["auc_high"] <= 1
        assert one["n_members"] + one["n_nonmembers"] == one["n_targets"] * 12
    made = judged[0]
    monkeypatch.setattr(command, "open_job", None)
    again = Lira(**flags).run()
    assert again["rows"] == document["rows"]
    assert again["earlier_cpu_seconds"] > 0
    for one, other in zip(made, judged[1], strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.read, other.read)


@pytest.fixture
def texts_of_its_own(monkeypatch):
    """The command on made-up texts, in a checkout of one commit, and no judging."""
    job = made_up_job()
    docs = PythonDocs(job.documents, tuple(Question(q, "x") for q in job.questions))
    monkeypatch.setattr(command, "read_python_docs", lambda: docs)
    monkeypatch.setattr(command, "code_version", lambda: "a commit")
    texts = tuple(f"{i} {word} {word}" for i, word in enumerate(WORDS * 3))[:24]
    pool = Pool(texts, (), np.repeat([1, 8], 12))
    monkeypatch.setattr(command, "read_texts", lambda job: None)
    monkeypatch.setattr(command, "draw_pool", lambda job, texts: pool)


def fails_at(monkeypatch, seeds):
    """Training without training, which fails at some seeds."""

    def made(opener, job, tasks, *, n_processes):
        for seed, shadow in zip(tasks, shadows(n=len(tasks)), strict=True):
            known = dataclasses.replace(shadow, seed=seed)
            yield seed, Failure("out of memory") if seed in seeds else known

    monkeypatch.setattr(command, "over_processes", made)


def run_command(monkeypatch, out, *words):
    words = ["x", "--tiny", "--models", "8", "--out", str(out), *words]
    monkeypatch.setattr("sys.argv", words)
    return command.main()


def test_models_that_fail_are_named_and_the_others_judged(
    tmp_path, monkeypatch, capsys, texts_of_its_own
):
    fails_at(monkeypatch, {6001, 6005})
    assert run_command(monkeypatch, tmp_path) == 3
    said = capsys.readouterr()
    assert "2 of 8 models were not made, seeds 6001, 6005" in said.err
    tables = (tmp_path / "tiny/lira.md").read_text()
    assert "2 of 8 models were not made" in tables
    assert "| 6005 | out of memory |" in tables
    document = json.loads((tmp_path / "tiny/lira.json").read_text())
    assert document["seeds"] == [6000, 6002, 6003, 6004, 6006, 6007]
    assert [one["seed"] for one in document["failures"]] == [6001, 6005]


def test_a_model_that_fails_again_alone_is_named_too(
    tmp_path, monkeypatch, capsys, texts_of_its_own
):
    fails_at(monkeypatch, {6005})
    assert run_command(monkeypatch, tmp_path) == 3

    def failing(job):
        def make(seed):
            raise OSError(f"no room for {seed}")

        return make

    monkeypatch.setattr(command, "open_job", failing)
    assert run_command(monkeypatch, tmp_path) == 3
    document = json.loads((tmp_path / "tiny/lira.json").read_text())
    (failure,) = document["failures"]
    assert (failure["seed"], failure["reason"]) == (6005, "OSError: no room for 6005")


def test_nothing_is_written_where_too_few_models_are_left(
    tmp_path, monkeypatch, capsys, texts_of_its_own
):
    fails_at(monkeypatch, range(6000, 6008))
    assert run_command(monkeypatch, tmp_path) == 3
    assert "8 of 8 models were not made" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_other_seeds_write_over_no_record(tmp_path, monkeypatch, texts_of_its_own):
    fails_at(monkeypatch, ())
    assert run_command(monkeypatch, tmp_path) == 0
    records = tmp_path / "tiny/models"
    before = {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert len(before) == 8
    # Seven of its models have seeds of the first run, and another pool of texts.
    assert run_command(monkeypatch, tmp_path, "--seed", "6001") == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(records.iterdir())) == 16


def test_too_few_models_are_refused():
    with pytest.raises(InputError, match="--models must be at least 3, got 2"):
        Lira(models=2)
