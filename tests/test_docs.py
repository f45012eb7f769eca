"""The pages of the documentation: their commands parse, their methods exist."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from docs.site_hooks import grouped_methods
from jaxcontam.cli import COMMANDS, parse
from jaxcontam.methods.membership.score import ScoredText, ScoreMethod

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
METHODS = {name for rows in grouped_methods().values() for name in rows}


def commands_of(text):
    """Command lines of the blocks of a page that people type from."""
    for block in re.findall(r"```(?:bash|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if (line := line.removeprefix("$ ")).startswith("jaxcontam "):
                yield line


LINES = [(page, line) for page in PAGES for line in commands_of(page.read_text())]


@pytest.mark.parametrize(
    ("page", "line"), LINES, ids=[f"{page.stem}: {line[:50]}" for page, line in LINES]
)
def test_commands_of_the_pages_parse(page, line):
    # Within a word, as in api:URL#NAME, the sign begins no comment.
    name, *words = shlex.split(re.sub(r"\s#\s.*", "", line))[1:]
    if "--tests stratifed" in line:
        pytest.skip("shows what a mistyped name gives")
    if name in COMMANDS:
        parse(COMMANDS[name], words, prog=f"jaxcontam {name}")
    else:
        assert name.startswith("--")


def test_every_method_has_a_page_with_its_formula_and_no_page_is_left_over():
    pages = {page.stem for page in (DOCS / "methods").glob("*.md")} - {"index"}
    assert pages == METHODS
    for name in METHODS:
        assert (DOCS / "methods" / f"{name}.md").read_text().strip(), name


def test_method_of_the_how_to_page_is_a_score():
    (code,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "how_to/own_method.md").read_text(), re.DOTALL
    )
    names = {}
    exec(code, names)
    flat, uneven = (
        ScoredText(
            text="a b", ids=np.array([1, 2]), logprobs=np.array(logprobs, np.float32)
        )
        for logprobs in ([-2.0, -2.0], [-1.0, -3.0])
    )
    assert isinstance(names["METHOD"], ScoreMethod)
    assert names["METHOD"].score(flat) == 0 > names["METHOD"].score(uneven) == -1


def test_rooms_of_the_picture_are_rooms_of_the_house():
    picture = (DOCS / "pictures/architecture.svg").read_text()
    named = re.findall(r'class="t"[^>]*>([a-z]+)', picture)
    assert len(named) == 13
    for name in named:
        places = (ROOT / "jaxcontam" / name, ROOT / "jaxcontam" / f"{name}.py")
        assert any(place.exists() for place in (*places, ROOT / name)), name
    rooms = {
        path.name
        for path in (ROOT / "jaxcontam").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    assert rooms <= set(named)
