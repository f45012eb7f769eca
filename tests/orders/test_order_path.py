"""The whole path loader -> plan -> scorer -> p, with a stub in place of a model."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS
from jaxcontam.orders.calibrate import p_values
from jaxcontam.orders.methods import asked_tests, order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.scorer import Scorer

CONTEXT, PREFIX = 64, 0
ORDER_TESTS = [
    name
    for name, method in METHODS.items()
    if isinstance(method, OrderMethod | PairMethod)
]


@pytest.fixture(scope="module")
def tokenizer():
    """One id a byte: any text encodes, and nothing is learned."""
    vocab = {
        c: i + 1 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = Tokenizer(models.BPE({**vocab, "<s>": PREFIX}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def bigrams(table):
    """A stub model: its log-probabilities depend on two ids, and on nothing else."""

    def after_prefixes(prefixes_IP, lengths_I, ids_IKT, at_once):
        _, K, _ = ids_IKT.shape
        last_I = np.take_along_axis(prefixes_IP, lengths_I[:, None] - 1, axis=1)
        last_IK1 = np.repeat(last_I, K, axis=1)[..., None]
        before_IKT = np.concatenate([last_IK1, ids_IKT[..., :-1]], axis=-1)
        return table[before_IKT, ids_IKT]

    return Scorer(
        lambda inputs, targets: (table[inputs, targets], None, None),
        context=CONTEXT,
        batch_tokens=512,
        pairs=PairScorer(after_prefixes, context=CONTEXT, batch_tokens=512),
    )


def random_bigrams(seed):
    """A stub that never saw the file."""
    gamma = np.random.default_rng(seed).gamma(1.0, size=(300, 300))
    return bigrams(-gamma.astype(np.float32))


def memoriser(benchmark_ids):
    """A stub that finds an example's first id likely after the one before it."""
    table = np.full((300, 300), -5.0, np.float32)
    stream = np.concatenate([[PREFIX], *benchmark_ids])
    table[stream[:-1], stream[1:]] = -0.1
    return bigrams(table)


def write_lines(path, rng, n=40):
    """Examples of 4 to 9 letters in random order: exchangeable by construction."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    texts = ["".join(rng.choice(letters, size=rng.integers(4, 10))) for _ in range(n)]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def run(path, tokenizer, scorer, name="stratified", separator="\n", **kwargs):
    benchmark = load_benchmark(path)
    encoded = encode_examples(tokenizer, benchmark.texts, separator=separator)
    flags = dict(prefix_id=PREFIX, context=CONTEXT, seed=0) | kwargs
    planned = plan_test(benchmark, encoded, order_method(name), **flags)
    scored = score_test(planned, scorer)
    result = planned.result(scored, primary=True, pretests=())
    return result, scored.evidence, planned


@pytest.mark.parametrize("name", ORDER_TESTS)
def test_every_test_finds_a_memorised_order(tmp_path, tokenizer, name):
    # Distinct first and last letters: the stub knows each boundary of the file alone.
    order = np.random.default_rng(0).permutation([*"abcdefghijklmnopqrstuvwxyz"])
    path = tmp_path / "x.txt"
    path.write_text("\n".join(f"{letter}0{letter.upper()}" for letter in order))
    ids = [tokenizer.encode(text).ids for text in path.read_text().splitlines()]
    found, _, _ = run(path, tokenizer, memoriser(ids), name, separator="")
    numbers = found.numbers
    floor = numbers.p_floor if numbers.p_floor is not None else 1e-6
    assert numbers.p_value <= max(1.01 * floor, 1e-3)
    assert numbers.effect > 0


def test_shards_are_as_many_as_asked_for(tmp_path, tokenizer):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(0))
    benchmark = load_benchmark(path)

    def layout(word):
        (asked,) = asked_tests([word])
        return plan_test(
            benchmark,
            encode_examples(tokenizer, benchmark.texts),
            asked.method,
            prefix_id=PREFIX,
            context=CONTEXT,
            seed=0,
            n_orders=asked.n_orders,
        ).layout

    for word, n_shards, n_orders in (
        ("sharded_t", 20, 49),
        ("sharded_t:3:shards=4", 4, 3),
        ("sharded_t_released:shards=20", 20, 49),
    ):
        found = layout(word)
        assert (found.design.n_strata, found.n_orders) == (n_shards, n_orders)
    with pytest.raises(InputError, match="at most 20 have two"):
        layout("sharded_t:shards=21")
    for word in (
        "sharded_t:shards=1",
        "reversal:shards=4",
        "sharded_t:shards=4x",
        "sharded_t:shards=3:shards=4",
    ):
        with pytest.raises(InputError, match=r"takes "):
            asked_tests([word])


def test_matrix_holds_the_log_likelihood_of_each_order(tmp_path, tokenizer):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(1))
    scorer = random_bigrams(3)
    _, evidence, planned = run(path, tokenizer, scorer)
    ids = planned.encoded.ids
    for k, j in [(0, 0), (3, 4), (evidence.scores.shape[0] - 1, 9)]:
        order = [i for i in evidence.orders[k, j].tolist() if i >= 0]
        tokens = np.concatenate([[PREFIX], *[ids[i] for i in order]]).astype(np.int32)
        expected = scorer.log_likelihoods([tokens])[0]
        assert evidence.scores[k, j] == expected
    published = evidence.orders[:, 0]
    np.testing.assert_array_equal(published[published >= 0], np.arange(40))


def test_scores_do_not_depend_on_where_the_published_order_stood(tmp_path, tokenizer):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(1))
    a, b = (run(path, tokenizer, random_bigrams(3), seed=s)[1] for s in (1, 2))
    assert not np.array_equal(a.place, b.place)
    np.testing.assert_array_equal(a.scores[:, 0], b.scores[:, 0])


@pytest.mark.parametrize(
    ("lines", "n_repeated", "most"),
    [
        (["same"] * 30 + ["other"] * 2, "30 of 32", 6),
        # They agree after the cut.
        (["a" * 100 + "bc"[i % 2] * (3 + i) for i in range(20)], "19 of 20", 9),
    ],
)
def test_equal_rows_are_scored_once(tmp_path, tokenizer, lines, n_repeated, most):
    path = tmp_path / "x.txt"
    path.write_text("\n".join(lines))
    result, _, planned = run(path, tokenizer, random_bigrams(0))
    sequences = [s.tobytes() for s in planned.layout.plan.sequences]
    assert len(set(sequences)) == len(sequences) < most
    assert f"{n_repeated} examples repeat another one" in result.warnings


def test_long_examples_are_cut_alike_and_counted(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{chr(97 + i % 26)}" * 200 + "\n" for i in range(20)))
    result, evidence, planned = run(path, tokenizer, random_bigrams(0))
    assert result.n_cut == 20
    assert "20 of 20 examples were cut to fit, to at most 31 tokens" in result.warnings
    # Two examples share 63 targets: 31 ids each, the separator kept.
    assert set(evidence.cut.tolist()) == {201 - 31}
    separator = planned.encoded.separator[-1]
    for sequence in planned.layout.plan.sequences:
        assert len(sequence) == 63
        assert sequence[31] == sequence[62] == separator


def test_whole_file_permutation_is_scored_in_windows_and_never_cut(tmp_path, tokenizer):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(2))
    result, evidence, planned = run(path, tokenizer, random_bigrams(0), "permutation")
    assert evidence.scores.shape == (1, 100)
    assert {len(s) for s in planned.layout.plan.sequences} == {
        1 + int(planned.encoded.lengths.sum())
    }
    assert result.n_cut == 0
    rank = 1 + np.sum(evidence.scores[0, 1:] >= evidence.scores[0, 0])
    assert result.numbers.p_value == pytest.approx(rank / 100)
    assert result.numbers.p_monte_carlo == result.numbers.p_value


def test_groups_restrict_orders_and_name_the_null(tmp_path, tokenizer):
    path = tmp_path / "x.jsonl"
    rows = [{"t": f"{i}", "subject": "ab"[i // 3 % 2]} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result, evidence, _ = run(
        path, tokenizer, random_bigrams(0), group_field="subject", n_orders=5
    )
    subject = np.arange(40) // 3 % 2
    assert (subject[evidence.orders] == subject[evidence.orders[:, :1]]).all()
    assert result.n_dropped > 0
    assert result.null == "within-group exchangeability"
    assert result.n_orders == 5


@pytest.mark.parametrize("name", ["reversal", "direction", "adjacency"])
def test_randomised_p_values_break_ties_alone(tmp_path, tokenizer, name):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(2))
    # A stub that looks at two ids sees neighbours if nothing stands between them.
    result, evidence, planned = run(
        path, tokenizer, random_bigrams(0), name, separator="", n_orders=30
    )
    assert name != "reversal" or result.n_orders == 1
    ends = [p_values(planned, evidence, uniform=u) for u in (0.0, 1.0)]
    p_value = result.numbers.p_value
    # Nothing ties, and no bracket of p is wider than a tenth of it.
    assert ends == [(p_value, pytest.approx(p_value, rel=0.1))] * 2


@pytest.mark.parametrize("name", ORDER_TESTS)
def test_nan_names_the_example(tmp_path, tokenizer, name):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(0))
    first, _, rest = path.read_text().partition("\n")
    path.write_text(f"{first}\naaZaa\n{rest}")
    table = np.full((300, 300), -1.0, np.float32)
    table[:, tokenizer.encode("Z").ids[0]] = np.nan
    with pytest.raises(InputError, match=r"x: example \d+: its log-prob"):
        run(path, tokenizer, bigrams(table), name)


@pytest.mark.parametrize(
    ("lines", "context", "message"),
    [
        (["one"], 64, "x: 1 example, stratified needs 2"),
        (["one", "two"], 2, "no two examples fit the model's context of 2 tokens"),
    ],
)
def test_bad_files_say_why(tmp_path, tokenizer, lines, context, message):
    path = tmp_path / "x.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=message):
        run(path, tokenizer, random_bigrams(0), context=context)
