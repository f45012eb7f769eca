"""Files of passages: blocks take the place of examples, their inner order is kept."""

import json

import numpy as np
import pytest

from jaxcontam.cli import main
from jaxcontam.commands.verify import verify_report
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.blocks import as_blocks, block_starts, encoded_blocks
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint


def write(path, passages):
    """One question a line; `passages` gives the passage of each."""
    rng = np.random.default_rng(1)
    letters = list("abcdefghijklmnop")
    rows = [
        {
            "passage": p,
            "level": i % 2,
            "q": f"{''.join(rng.choice(letters, 8))} on {p}?",
        }
        for i, p in enumerate(passages)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_runs_become_examples_with_what_they_share(tmp_path):
    path = write(tmp_path / "x.jsonl", ["a", "a", "b", "c", "c", "c"])
    benchmark = load_benchmark(path, text_field="q")
    starts = block_starts(benchmark, "passage")
    assert starts.tolist() == [0, 2, 3]
    blocks = as_blocks(benchmark, starts)
    assert blocks.texts[0] == "\n".join(benchmark.texts[:2])
    assert [row["passage"] for row in blocks.rows] == ["a", "b", "c"]
    assert "level" not in blocks.rows[0]
    assert blocks.rows[1]["level"] == 0


def test_ids_of_blocks_are_those_of_their_examples_in_order(tmp_path, pulse):
    path = write(tmp_path / "x.jsonl", ["a", "a", "b", "c", "c", "c"])
    benchmark = load_benchmark(path, text_field="q")
    tokenizer = load_checkpoint(str(pulse / "model")).tokenizer
    whole = encode_examples(tokenizer, benchmark.texts, max_example_tokens=6)
    blocks = encoded_blocks(whole, block_starts(benchmark, "passage"))
    np.testing.assert_array_equal(np.concatenate(blocks.ids), np.concatenate(whole.ids))
    assert len(blocks.ids) == 3
    assert blocks.n_cut_ids.sum() == whole.n_cut_ids.sum() > 0


def test_value_in_two_runs_is_no_block(tmp_path):
    path = write(tmp_path / "x.jsonl", ["a", "b", "b", "a"])
    with pytest.raises(InputError, match="'a' in two separate runs, at examples 1 and"):
        block_starts(load_benchmark(path), "passage")


def test_blocks_make_a_grouped_file_a_valid_design(tmp_path, pulse, capsys):
    rng = np.random.default_rng(0)
    order = rng.permutation(30)
    path = write(tmp_path / "x.jsonl", [f"p{p}" for p in order for _ in range(3)])
    words = ["audit", str(pulse / "model"), str(path), "--text-field", "q"]
    assert main([*words, "--out", str(tmp_path / "plain"), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["results"][0]
    assert plain["verdict"] == "invalid design"
    out = tmp_path / "blocks"
    assert main([*words, "--block-field", "passage", "--out", str(out), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert row["n_examples"] == 30
    assert row["block_field"] == "passage"
    assert row["null"] == "exchangeability of blocks"
    assert row["verdict"] != "invalid design"
    assert verify_report(out)[0] == []
    assert "runs of equal passage and keep their inner" in (
        (out / "report.html").read_text()
    )


def test_blocks_cannot_be_groups_too(capsys):
    flags = ["--group-field", "f", "--block-field", "f"]
    assert main(["audit", "m", "x.jsonl", *flags]) == 2
    assert "name the same field" in capsys.readouterr().err
