"""The population of LiRA, its records, and the study in its pulse size."""

import dataclasses
import json

import numpy as np
import pytest

import eval.lira.__main__ as command
from eval.lira.__main__ import TINY, Lira, fields_of, shadow_of
from eval.lira.found import ONLINE, TINY_ANALYSIS, found_of
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
from tests.lira_scores import population
from train.population_workers import Failure

pytestmark = pytest.mark.unoptimised


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


def test_record_of_a_model_is_read_back_to_the_bit():
    shadow, *_ = shadows()
    found = shadow_of(json.loads(json.dumps(fields_of(shadow))))
    np.testing.assert_array_equal(found.values, shadow.values)
    np.testing.assert_array_equal(found.read, shadow.read)
    assert (found.read.dtype, found.values.dtype) == (bool, np.float64)
    assert (found.seed, found.loss) == (shadow.seed, shadow.loss)


def test_pulse_run_leaves_tables_and_does_not_train_again(tmp_path, monkeypatch):
    job = made_up_job()
    docs = PythonDocs(job.documents, tuple(Question(q, "x") for q in job.questions))
    monkeypatch.setattr(command, "read_python_docs", lambda: docs)
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")
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
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")
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
