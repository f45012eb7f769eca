"""What studies share: tables of words, the files that they leave, their records."""

import io
import json
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from eval.intervals import Share
from eval.power.estimates import copies_svg
from eval.study import (
    Clock,
    Grid,
    Records,
    StudyFlags,
    finish_study,
    markdown,
    print_grid,
)

GRID = Grid("A title", ("test", "power"), (("a | b", "0.5\n0.4"), ("c", "1")))


def finish(out, numbers, **more):
    console = Console(quiet=True)
    flags, grids = StudyFlags(seed=3), (GRID,)
    known = dict(clock=Clock.start(), out=out, grids=grids, console=console)
    return finish_study("power", flags, numbers=numbers, **known, **more)


def test_study_leaves_numbers_tables_and_figures_with_command_and_cost(tmp_path):
    shares = {copies: Share(value=0.5, low=0.4, high=0.6) for copies in (0, 1, 2)}
    svg = copies_svg({"x < y": shares})
    out = tmp_path / "new"
    document = finish(out, {"rows": [1, 2]}, figures={"curve": svg})
    assert json.loads((out / "power.json").read_text()) == document
    assert document["command"] == ["eval.power", "--seed", "3"]
    assert document["cpu_seconds"] >= 0 and document["wall_seconds"] >= 0
    ElementTree.fromstring((out / "curve.svg").read_text())
    tables = (out / "power.md").read_text()
    assert markdown(GRID) in tables and "python -m eval.power --seed 3" in tables
    # One line a row, and as many cells.
    title, empty, *lines = markdown(GRID).splitlines()
    assert (title, empty) == ("A title", "")
    assert [line.replace("\\|", "").count("|") for line in lines] == [3] * 4
    # A number that is not finite is refused.
    with pytest.raises(ValueError, match="JSON"):
        finish(tmp_path, {"x": float("nan")})
    assert not (tmp_path / "power.json").exists()


def printed(grid, *, width):
    out = io.StringIO()
    print_grid(grid, Console(file=out, width=width))
    return out.getvalue()


def test_words_are_printed_as_they_are_and_none_is_cut():
    # Of the two kinds of brackets, one ends a style and one begins it; then an emoji.
    words = ("bad [/job:0] x", "[mmlu]: no field", ":key: [bold]0.123456")
    grid = Grid("[red]of[/x]", words, (words, words[::-1]))
    narrow, wide = (printed(grid, width=width) for width in (12, 200))
    for word in words:
        assert narrow.count(word) == wide.count(word) == 3
    assert wide.splitlines()[1] == grid.title
    # As many lines, so that no row wraps inside itself.
    assert narrow.splitlines()[-3:] == wide.splitlines()[-3:]


def test_record_of_other_inputs_or_code_is_not_taken(tmp_path, monkeypatch):
    code = ["one"]
    monkeypatch.setattr("eval.study.code_version", lambda: code[0])

    def read(inputs="a", *, any_code=False):
        return Records(tmp_path, any_code=any_code).read("m", inputs)

    fields = {"rows": [1, 2], "cpu_seconds": 3.0}
    Records(tmp_path).write("m", fields, "a")
    assert read() == fields and read("b") is None
    # Without git nothing says whose record it is.
    for version in ("other", None):
        code[0] = version
        assert read() is None and read(any_code=True) == fields
