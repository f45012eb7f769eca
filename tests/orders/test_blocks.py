"""Files of passages: blocks take the place of examples, their inner order is kept."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.orders.benchmarks import (
    as_blocks,
    block_starts,
    encoded_blocks,
    order_checks,
    whole_blocks,
)
from jaxcontam.orders.design import AuditDesign
from tests.support.verified import verified

pytestmark = pytest.mark.unoptimised


PASSAGES = ["a", "a", "b", "c", "c", "c"]
THREE_EACH = [f"p{p}" for p in np.random.default_rng(0).permutation(30).repeat(3)]


def write(path, passages=PASSAGES, **columns):
    """One question a line; `passages` gives the passage of each."""
    rng, letters = np.random.default_rng(1), list("abcdefghijklmnop")
    with path.open("w") as out:
        for i, p in enumerate(passages):
            row = {"passage": p, "level": i % 2}
            row["q"] = f"{''.join(rng.choice(letters, 8))} on {p}?"
            row |= {name: value(i, p) for name, value in columns.items()}
            out.write(json.dumps(row) + "\n")
    return path


def test_runs_become_examples_with_what_they_share(tmp_path, pulse):
    benchmark = load_benchmark(write(tmp_path / "x.jsonl"), text_field="q")
    starts = block_starts(benchmark, "passage")
    assert starts.tolist() == [0, 2, 3]
    blocks = as_blocks(benchmark, starts)
    assert blocks.texts[0] == "\n".join(benchmark.texts[:2])
    assert [row["passage"] for row in blocks.rows] == ["a", "b", "c"]
    assert "level" not in blocks.rows[0] and blocks.rows[1]["level"] == 0
    # Ids are those of their examples, in order.
    tokenizer = load_checkpoint(str(pulse / "model")).tokenizer
    whole = encode_examples(tokenizer, benchmark.texts, max_example_tokens=6)
    joined = encoded_blocks(whole, starts)
    np.testing.assert_array_equal(np.concatenate(joined.ids), np.concatenate(whole.ids))
    assert len(joined.ids) == 3
    assert joined.n_cut_ids.sum() == whole.n_cut_ids.sum() > 0


def test_value_in_two_runs_is_no_block(tmp_path):
    path = write(tmp_path / "x.jsonl", ["a", "b", "b", "a"])
    with pytest.raises(InputError, match="'a' in two separate runs, at examples 1 and"):
        block_starts(load_benchmark(path), "passage")


def test_blocks_make_a_grouped_file_a_valid_design(tmp_path, pulse, capsys):
    path = write(tmp_path / "x.jsonl", THREE_EACH)
    words = ["audit", str(pulse / "model"), str(path), "--text", "q"]
    words += ["--tests", "adjacency", "--json"]
    assert main([*words, "--out", str(tmp_path / "plain")]) == 0
    (plain,) = json.loads(capsys.readouterr().out)["unscored"]
    assert plain["verdict"] == "invalid design"
    out = tmp_path / "blocks"
    assert main([*words, "--block-field", "passage", "--out", str(out)]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert row["n_examples"] == 30
    assert row["block_field"] == "passage"
    assert row["null"] == "exchangeability of blocks"
    assert row["verdict"] != "invalid design"
    assert verified(out)[0] == []
    page = (out / "report.html").read_text()
    assert "runs of equal passage and keep their inner" in page


def test_checks_of_blocks_within_groups_take_the_groups_of_blocks(tmp_path):
    passages = [f"p{i}" for i in range(40) for _ in range(3)]
    path = write(tmp_path / "x.jsonl", passages, side=lambda _, p: int(p[1:]) % 4)
    benchmark = load_benchmark(path, text_field="q")
    grouped = AuditDesign(group_field="side")
    both = AuditDesign(group_field="side", block_field="passage")
    found = order_checks(benchmark, both)
    blocks = as_blocks(benchmark, block_starts(benchmark, "passage"))
    assert found == order_checks(blocks, grouped)


def test_limit_never_cuts_a_block(tmp_path, pulse, capsys):
    """A part of a block would always stand last in the published order."""
    benchmark = load_benchmark(write(tmp_path / "x.jsonl"), text_field="q")
    limits = {2: 2, 3: 3, 4: 3, 5: 3, 6: 6, 99: 6}
    kept = {n: len(whole_blocks(benchmark, "passage", n)) for n in limits}
    assert kept == limits
    with pytest.raises(InputError, match="the first block of passage has 2 examples"):
        whole_blocks(benchmark, "passage", 1)
    path = write(tmp_path / "y.jsonl", THREE_EACH)
    words = ["audit", str(pulse / "model"), str(path), "--text", "q", "--json"]
    flags = ["--block-field", "passage", "--limit", "59", "--tests", "reversal"]
    assert main([*words, *flags, "--out", str(tmp_path / "out")]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["n_examples"] == 19


def test_secondary_test_without_an_order_is_left_out(tmp_path, pulse, capsys):
    # Of the two values each stratum of a reversal has one alone in its middle.
    path = write(tmp_path / "x.jsonl", ["a", "b"] * 20, side=lambda i, _: "lmr"[i % 3])
    words = ["audit", str(pulse / "model"), str(path), "--group-field", "side"]
    # Sides that take turns are no random order.
    flags = ["--tests", "permutation:2,reversal", "--order", "anyway"]
    assert main([*words, *flags, "--out", str(tmp_path / "out"), "--json"]) == 0
    captured = capsys.readouterr()
    found = [row["method"] for row in json.loads(captured.out)["results"]]
    assert found == ["permutation"]
    assert "warning: left out" in captured.err
