"""`jaxcontam variants`: published texts among rewrites, exact if drawn at random."""

import json
import math

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.cli.main import main
from jaxcontam.ownership.variants import load_versions, variants_result
from jaxcontam.proof.verdict import decide
from jaxcontam.proof.versions import VersionSet, plan_texts, score_texts
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.orders import draw_places
from jaxcontam.stats.rows import unpadded
from tests.support.labelled_rows import WORDS, drawn, write_lines

pytestmark = pytest.mark.unoptimised

CONTEXT, PREFIX = 64, 0


@pytest.fixture(scope="module")
def tokenizer():
    """One id a byte: any text encodes, and nothing is learned."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(["<s>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def scorer_of(table):
    return Scorer(
        lambda inputs, targets: (table[inputs, targets], None, None),
        context=CONTEXT,
        batch_tokens=512,
    )


def bigrams(seed):
    """A stub model that never saw any text: random bigram log-probabilities."""
    rng = np.random.default_rng(seed)
    return -rng.gamma(1.0, size=(300, 300)).astype(np.float32)


def drawn_rows(rng, n=6):
    """Rows of 2 to 5 random sentences; the first is as good as drawn at random."""
    sizes = rng.integers(2, 6, size=(n, 2))
    return [tuple(drawn(k, rng, n_words=n_words)) for k, n_words in sizes]


def result_of(rows, tokenizer, table, *, seed=0, randomised=True, unit="token"):
    texts = VersionSet(
        name="v",
        rows=tuple(map(tuple, rows)),
        places=tuple(f"v.jsonl: row {i}" for i in range(1, len(rows) + 1)),
    )
    plan = plan_texts(texts, tokenizer, prefix_id=PREFIX, seed=seed)
    scored = score_texts(texts, plan, scorer_of(table), per_token=unit == "token")
    result = variants_result(
        texts, scored, randomised=randomised, unit=unit, n_left_out=0, seed=seed
    )
    return result, scored, plan


@pytest.mark.parametrize("unit", ["token", "total"])
def test_scores_are_log_likelihoods_of_each_version(tokenizer, unit):
    rows, table = drawn_rows(np.random.default_rng(0)), bigrams(1)
    _, scored, _ = result_of(rows, tokenizer, table, unit=unit)
    for row, found in zip(rows, scored.rows, strict=True):
        assert len(found) == len(row)
        for text, score in zip(row, found, strict=True):
            ids = [PREFIX, *tokenizer.encode(text).ids]
            expected = table[ids[:-1], ids[1:]].astype(np.float64).sum()
            if unit == "token":
                expected /= len(ids) - 1
            assert score == pytest.approx(expected, rel=1e-6)


def test_versions_not_drawn_at_random_are_never_more_than_suspected(tokenizer):
    rows = [(f"{word} {word}", word * 3, f"{word}x") for word in WORDS[:16]]
    table = np.full((300, 300), -3.0, np.float32)
    table[:, tokenizer.encode(" ").ids[0]] = -0.1  # likes spaces, saw nothing
    declared, lot = (
        result_of(rows, tokenizer, table, randomised=one)[0] for one in (False, True)
    )
    assert declared.numbers.p_value == lot.numbers.p_value < 1e-6
    assert lot.numbers.effect > 0
    assert [r.verdict for r in decide([declared], min_effect=0.1)] == ["suspected"]
    assert [r.verdict for r in decide([lot], min_effect=0.1)] == ["contaminated"]
    assert declared.null == "exchangeability of versions (declared)"
    assert (declared.validity, lot.validity) == ("heuristic", "exact")
    assert "not drawn at random" in declared.warnings[0]
    assert lot.warnings == ()


def test_place_of_the_published_version_is_uniform_and_follows_the_seed():
    first, again, other = (
        draw_places([4] * 400, seed=seed, content_digest="7f") for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    counts = np.bincount(first, minlength=4)
    # 400 rows, 100 a place: 3.3 standard errors of 8.7.
    assert abs(counts - 100).max() < 3.3 * math.sqrt(400 * 3 / 16)


def test_scores_do_not_depend_on_where_the_published_version_stood(tokenizer):
    rows = drawn_rows(np.random.default_rng(1))
    a, b = (result_of(rows, tokenizer, bigrams(0), seed=s)[1] for s in (1, 2))
    assert not np.array_equal(a.place, b.place)
    for first, second in zip(a.rows, b.rows, strict=True):
        np.testing.assert_array_equal(first, second)


def test_draws_are_blind_to_which_version_is_published():
    rows = (("a", "b", "c"), ("d", "e"))
    turned = (("c", "a", "b"), ("e", "d"))
    sets = [VersionSet(name="v", rows=r, places=("", "")) for r in (rows, turned)]
    assert sets[0].content_digest == sets[1].content_digest
    assert sets[0].fingerprint != sets[1].fingerprint


def test_equal_versions_are_scored_once(tokenizer):
    _, scored, plan = result_of([("a b", "a c", "a b")] * 5, tokenizer, bigrams(0))
    assert len(plan.sequences) == 2
    assert [len(row) for row in scored.rows] == [3] * 5
    assert scored.rows[0][0] == scored.rows[0][2]


def test_a_hole_in_padded_rows_is_refused():
    with pytest.raises(ValueError, match="hole"):
        unpadded(np.array([[1.0, np.nan, 2.0]]))


def test_rows_are_read_with_any_number_of_rewrites(tmp_path):
    path = tmp_path / "v.jsonl"
    new = {"a": ["b", "c"], "d": "e", "f": []}
    write_lines(path, [{"q": text, "new": more} for text, more in new.items()])
    rows, places, n_left_out = load_versions(path, text_field="q", variants_field="new")
    assert rows == [("a", "b", "c"), ("d", "e")]
    assert places == [f"{path}: row 1", f"{path}: row 2"]
    assert n_left_out == 1


def test_command_writes_a_report_of_its_own_words(pulse, tmp_path, capsys):
    path, out = tmp_path / "v.jsonl", tmp_path / "out"
    rows = drawn_rows(np.random.default_rng(0), n=20)
    write_lines(path, [{"text": row[0], "variants": row[1:]} for row in rows])
    words = ["variants", str(pulse / "model"), str(path), "--out", str(out)]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the published versions were not drawn at random" in said
    (row,) = json.loads((out / "report.json").read_text())["results"]
    assert (row["method"], row["validity"]) == ("variants", "heuristic")
    assert row["effect_unit"] == "nats per token"
    (out / "report.json").unlink()
    assert main([*words, "--randomised", "--score", "total"]) == 0
    (row,) = json.loads((out / "report.json").read_text())["results"]
    assert (row["null"], row["validity"]) == ("designed randomisation", "exact")
    assert row["effect_unit"] == "nats per text"
