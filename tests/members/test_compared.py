"""What two sides can be compared by: copies, shared texts, documents; levels kept."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.documents import ASKED, compared
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.judging import judge, judge_texts
from jaxcontam.members.known_texts import read_texts
from jaxcontam.members.result import Scores
from jaxcontam.reports.archive import read_text_rows
from jaxcontam.stats.conformal import conformal_p_values
from jaxcontam.stats.relabelling import auc_p_values
from tests.support.membership_model import MEMBERS, OTHERS, save_overfitted

LEVELS = (0.05, 0.01, 0.001)


def zipf_draws(rng, n, n_others, *, n_source, exponent):
    """Two draws with repeats from one source, whose frequent texts are likelier."""
    weights = np.arange(1.0, n_source + 1) ** -exponent
    weights /= weights.sum()
    ids = np.concatenate(
        [rng.choice(n_source, size, p=weights) for size in (n, n_others)]
    )
    scores = np.log(weights) + rng.normal(size=n_source)
    return [f"text {i}" for i in ids], scores[ids][:, None], np.arange(len(ids)) < n


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("abcc", "defdb", "aef"),
        # Ten texts that each stand three times are a file that was written so.
        ("abcdefghij" * 3, "aklm", "bcdefghijklm"),
        ("abcdefghi" * 3, "kl", "kl"),
        ("abcdefghij" * 3 + "a", "kl", "kl"),
        ("abcdefghij" * 2, "klmnopqrst" * 3, "abcdefghijklmnopqrst"),
        ("ab", "ab", ""),
    ],
)
def test_a_text_that_stands_once_on_both_sides_together_is_compared(
    first, second, kept
):
    sides = np.arange(len(first + second)) < len(first)
    found = compared([*first, *second], sides, None, ASKED)
    assert "".join(np.array([*first, *second])[found.kept]) == kept
    # A copy of a text that is compared needs no reason.
    has_none = [why is None for why in found.why]
    assert has_none == [text in kept for text in first + second]


def test_a_text_of_two_documents_is_left_out_and_copies_in_one_stay():
    texts = ["x", "x", "y", "z", "y", "z", "w"]
    documents = ["a", "a", "a", "b", "b", "c", "b"]
    sides = np.arange(7) < 5
    found = compared(texts, sides, documents, ASKED)
    assert found.kept.tolist() == [True, True, *[False] * 4, True]
    assert found.why[2:6] == (
        "stands in more than one document",
        "stands among the non-members",
        "stands in more than one document",
        "stands among the texts in question",
    )
    assert [words[:21] for words in found.warnings] == ["1 distinct text stand"] * 2


def test_labelled_draws_of_two_sizes_from_one_source_keep_the_level():
    rng, p_values = np.random.default_rng(0), []
    for _ in range(40):
        texts, scores, labels = zipf_draws(rng, 500, 100, n_source=1500, exponent=0.8)
        ranking = judge(
            *("x", "d", Scores(("a",), scores), labels),
            texts=texts,
            primary="a",
            n_boot=2,
        )
        p_values.append(ranking.results[0].p_value)
    # 3 standard errors of 40 files; copies that move as one give 0.3.
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * 0.0345


def test_p_values_of_texts_from_the_source_of_the_pool_keep_the_level():
    rng, shares, n_found = np.random.default_rng(1), [], 0
    for _ in range(20):
        texts, scores, _ = zipf_draws(rng, 150, 120, n_source=400, exponent=1.0)
        found = judge_texts(
            *("x", "d", Scores(("a",), scores[:150]), Scores(("a",), scores[150:])),
            texts=texts[:150],
            pool_texts=texts[150:],
            n_permutations=9,
        )
        (p_values,) = found.p_values.T
        tested = np.isfinite(p_values)
        assert [why is None for why in found.why] == tested.tolist()
        shares.append(np.mean(p_values[tested] <= 0.05))
        n_found += found.thresholds[1].n_discoveries
    # Texts share their pool: 3 standard errors over 20 files of the mean of a file.
    assert np.mean(shares) <= 0.05 + 3 * np.std(shares) / np.sqrt(20)
    assert n_found == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_others", "n_source", "exponent"),
    [
        (800, 150, 2500, 0.6),
        (60, 300, 500, 1.0),
        (150, 150, 400, 1.2),
        (1500, 100, 5000, 0.4),
    ],
)
def test_draws_with_repeats_keep_every_level(n, n_others, n_source, exponent):
    rng, of_sets, of_texts = np.random.default_rng(n), [], []
    for seed in range(1000):
        texts, scores, sides = zipf_draws(
            rng, n, n_others, n_source=n_source, exponent=exponent
        )
        kept = compared(texts, sides, None, ASKED).kept
        scores, sides = scores[kept], sides[kept]
        of_sets.append(auc_p_values(scores, sides, n=999, seed=seed)[0])
        p_values = conformal_p_values(scores[sides, 0], scores[~sides, 0])
        of_texts.append([np.mean(p_values <= level) for level in LEVELS])
    for i, level in enumerate(LEVELS):
        # 3 standard errors of 1,000 files.
        se = np.sqrt(level * (1 - level) / 1000)
        assert np.mean(np.array(of_sets) <= level) <= level + 3 * se
        shares = np.array(of_texts)[:, i]
        assert shares.mean() <= level + 3 * shares.std() / np.sqrt(1000)


@pytest.mark.slow
def test_documents_that_share_texts_keep_every_level():
    """Documents of own texts and of a common stock, whose texts are likelier."""
    rng, of_sets = np.random.default_rng(2), []
    for seed in range(1000):
        documents = np.arange(90).repeat(rng.geometric(0.3, size=90))
        stock = rng.integers(40, size=len(documents))
        is_common = rng.random(len(documents)) < 0.2
        texts = [
            f"common {k}" if common else f"own {i}"
            for i, (k, common) in enumerate(zip(stock, is_common, strict=True))
        ]
        scores = rng.normal(size=90)[documents] + rng.normal(size=len(documents))
        scores[is_common] = 3.0
        sides = documents < 70
        kept = compared(texts, sides, documents.tolist(), ASKED).kept
        p_value = auc_p_values(
            scores[kept, None], sides[kept], documents[kept], n=999, seed=seed
        )
        of_sets.append(p_value[0])
    for level in LEVELS:
        # 3 standard errors of 1,000 files.
        se = np.sqrt(level * (1 - level) / 1000)
        assert np.mean(np.array(of_sets) <= level) <= level + 3 * se


def test_a_text_without_a_p_value_says_why_and_is_verified(tmp_path, capsys):
    model, out = tmp_path / "model", tmp_path / "out"
    save_overfitted(model)
    asked = [*MEMBERS[:15], OTHERS[0], MEMBERS[15], MEMBERS[15], ""]
    for name, texts in (("asked", asked), ("pool", OTHERS)):
        rows = "".join(json.dumps({"input": text}) + "\n" for text in texts)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    words = [str(model), str(tmp_path / "asked.jsonl"), "--scores", "loss"]
    words += ["--nonmembers", str(tmp_path / "pool.jsonl"), "--fpr", "0.1"]
    assert main(["membership", *words, "--out", str(out)]) == 0
    assert (
        "1 distinct text stands among the texts in question" in capsys.readouterr().out
    )
    rows = read_text_rows(out)
    tested, rest = rows[:15], rows[15:19]
    assert all(row["p_value"] <= 1 and row["no_p_value"] is None for row in tested)
    assert [(row["p_value"], row["p_adjusted"]) for row in rest] == [(None, None)] * 4
    assert [row["no_p_value"] for row in rest] == [
        "stands among the non-members",
        *["stands more than once"] * 2,
        "has no score",
    ]
    document = json.loads((out / "report.json").read_text())
    (threshold,) = document["thresholds"]
    n_above = sum(row["p_value"] <= 0.1 for row in tested)
    assert (threshold["n_pool"], threshold["n_above"]) == (23, n_above)
    assert ">stands more than once</td>" in (out / "report.html").read_text()
    assert main(["verify", str(out)]) == 0


def test_documents_that_have_one_name_in_two_files_are_told(tmp_path):
    paths = [tmp_path / f"{name}.jsonl" for name in ("seen", "unseen")]
    for path, texts in zip(paths, (MEMBERS, OTHERS), strict=True):
        rows = [{"input": text, "book": f"b{i % 3}"} for i, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = {"members": paths[0], "nonmembers": paths[1]}
    run = read_texts(MembershipDesign(**known, document_field="book"))
    assert run.warnings[-1].startswith("3 names of documents stand in more than one")
