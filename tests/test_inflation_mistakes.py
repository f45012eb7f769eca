"""What a slip in `jaxcontam inflation` costs: one line, and nothing asked."""

import pytest

from jaxcontam.cli import main
from jaxcontam.data.score_columns import read_columns
from jaxcontam.errors import InputError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m"], "no items to compare"),
        (["m", "a.jsonl"], "BENCHMARK and --against go together"),
        (["m", "a", "--against", "b", "--min-points", "0"], "--min-points must be"),
        (["m", "--scores"], "m: not a .csv or .tsv file of scores"),
        (["m.csv", "--scores", "--dry-run"], "--scores asks no model"),
        (["m", "a.jsonl", "--against", "b.jsonl"], "a.jsonl: no such file"),
        (["m", "a.jsonl", "--against", "a.jsonl"], "the published items again"),
        (
            ["m", "a.jsonl", "--against", "b.jsonl", "--reference", "r", "r"],
            "names a model twice",
        ),
        (
            ["m", "a.jsonl", "--against", "b.jsonl", "--reference", "m"],
            "names a model twice, or MODEL itself",
        ),
    ],
)
def test_mistakes_cost_one_line(words, said, capsys):
    assert main(["inflation", *words]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("jaxcontam: error: ")
    assert said in first


def test_items_without_a_header_are_told_that_the_first_row_names_columns(
    tmp_path, capsys
):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"1 + {name}?,2\n2 + {name}?,4\n")
    words = [str(tmp_path / "a.csv"), "--against", str(tmp_path / "b.csv")]
    assert main(["inflation", "m", *words]) == 2
    assert "the first row of a .csv or .tsv file names" in capsys.readouterr().err


@pytest.mark.parametrize("first", ["q1,1,0.5", "q1,1,1"])
def test_scores_without_a_header_are_told_as_such(first, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(f"{first}\nq2,0,1\n")
    with pytest.raises(InputError, match="the first row has no names of columns"):
        read_columns(path, ["m"])
