"""The pages of the documentation: their commands parse, their methods exist."""

import importlib
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs.site_hooks import COMMANDS_PAGE, commands_page, grouped_methods, overview
from examples import any_engine
from jaxcontam.cli.main import COMMANDS, flags_of, main, parse
from jaxcontam.cli.methods import FORMULAS
from jaxcontam.members.score import ScoredText, ScoreMethod
from jaxcontam.methods import METHODS as ROWS
from jaxcontam.methods import OWN
from jaxcontam.orders.methods import WORDS
from jaxcontam.proof.advice import AuditedFile, next_steps
from tests.support.report_documents import order_result
from tests.support.stand_ins import NOT_RUN, make_desk, make_reports

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Pages of the repository, whose links no builder checks.
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
LOGS = [ROOT / "LOG.md", *sorted((DOCS / "log").glob("*.md"))]
"""What was found once, by commands that may be gone."""
PAGES = [*TOP, *sorted({*DOCS.rglob("*.md")} - {*LOGS})]
INDEX = DOCS / "index.md"
METHODS = {name for rows in grouped_methods().values() for name in rows}


def shell_lines(text):
    """Lines of the blocks of a page that people type from; a loop is one."""
    for kind, block in re.findall(r"```(bash|console|sh)\n(.*?)```", text, re.DOTALL):
        block = block.replace("\\\n", " ")
        lines = [block] if "\ndone" in block else block.splitlines()
        for line in lines:
            is_typed = line.strip() and not line.startswith("#")
            if is_typed and (kind != "console" or line.startswith("$ ")):
                yield line.removeprefix("$ ")


def commands_of(text):
    """Lines that call the program."""
    return [line for line in shell_lines(text) if line.startswith("jaxcontam ")]


def python_of(page):
    """Blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


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


def reason_against(line):
    """Why a line of a page is not run; None for one that is."""
    found = (why for why, known in NOT_RUN.items() if re.search(known, line))
    return next(found, None)


RUN = {
    page: [line for line in found if reason_against(line) is None]
    for page in (ROOT / "README.md", *sorted({*DOCS.rglob("*.md")} - {*LOGS}))
    if (found := [*shell_lines(page.read_text())])
}


def test_each_reason_not_to_run_a_command_is_one_for_some():
    lines = [line for page in RUN for line in shell_lines(page.read_text())]
    assert {*NOT_RUN} == {*filter(None, map(reason_against, lines))}
    assert sum(map(len, RUN.values())) > len(lines) / 2


@pytest.fixture(scope="module")
def desk(tmp_path_factory, pulse):
    return make_desk(tmp_path_factory.mktemp("desk"), pulse)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in RUN if RUN[page]], ids=lambda page: page.stem
)
def test_commands_of_a_page_run_as_they_stand(page, desk, tmp_path, monkeypatch):
    """In their order, on small models and files of the names that they have there."""
    monkeypatch.chdir(shutil.copytree(desk, tmp_path / "desk", symlinks=True))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    for line in RUN[page]:
        make_reports(line)
        name, *words = shlex.split(re.sub(r"\s#\s.*", "", line))
        if name == "jaxcontam":
            code = main(words)
        else:
            code = subprocess.run(["bash", "-c", line], env=environ).returncode
        may_be = {0}
        if "--tests stratifed" in line:
            may_be = {2}
        elif name == "jaxcontam" and words[0] == "replicate":
            # Completions of an untrained model give no verdict.
            may_be = {0, 3}
        elif "--pilot" in line and "--out runs/pilot" in "\n".join(RUN[page]):
            # The effect of an untrained model may be below 0.
            may_be = {0, 2}
        assert code in may_be, line


AT_COMMIT = re.compile(r"\s*\(at\s+commit\s+[0-9a-f]{8}\b")
"""Stands behind a command that is gone, and says where it was."""
COMMAND = re.compile(
    r"(python -m )?(eval|train)\.\w+ -|python -m (eval|train)\.|jaxcontam |\.ci/"
)


def named_commands(text):
    """Commands of a page, in blocks and in running text, that no commit stands by."""
    for found in re.finditer(r"```\w*\n(.*?)```|`([^`]+)`", text, re.DOTALL):
        block, span = found.groups()
        lines = [span] if span else block.replace("\\\n", " ").splitlines()
        if not AT_COMMIT.match(text, found.end()):
            words = (" ".join(line.removeprefix("$ ").split()) for line in lines)
            yield from filter(COMMAND.match, words)


def flags_class(module):
    """The dataclass whose fields are the flags of `python -m MODULE`."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"no module {module}"
    is_package = spec.submodule_search_locations is not None
    module = importlib.import_module(f"{module}.__main__" if is_package else module)
    handed_on = r'(?:run_study\(\s*"[\w.]+",\s*|run_module\(|parse\()([A-Z]\w+)'
    (name,) = re.findall(handed_on, inspect.getsource(module))
    return getattr(module, name)


@pytest.mark.parametrize("page", [*PAGES, *LOGS], ids=lambda page: page.stem)
def test_commands_that_a_page_names_exist_or_have_the_commit_that_had_them(page):
    for line in named_commands(page.read_text()):
        # What may be left out stands in brackets.
        line = re.sub(r"\s#\s.*|\s\\?\|.*|[\[\]]", "", line.removeprefix("python -m "))
        name, *words = shlex.split(line)
        if name.startswith(".ci/"):
            assert (ROOT / name).is_file(), line
            continue
        if name == "jaxcontam":
            name, *words = words
            if not re.fullmatch("[a-z]+", name):
                continue
        kind = COMMANDS[name] if name in COMMANDS else flags_class(name)
        flags = {*flags_of(kind), "--help"}
        flags |= {flag.replace("--", "--no-", 1) for flag in flags}
        named = {word for word in words if re.fullmatch(r"--[a-z][\w-]*", word)}
        assert named <= flags, line
        if "--only" in named:
            parse(kind, words, prog=name)


def test_files_of_the_page_of_the_architecture_exist():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \d+ \| `([^`]+)`", page, flags=re.MULTILINE)
    assert len(named) == 19
    assert all((ROOT / "jaxcontam" / name).is_file() for name in named)


def anchor_of(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_entries_of_the_log_say_what_came_of_them_and_stand_in_the_index():
    _, index = LOGS[0].read_text().split("| question")
    named = set(re.findall(r"\]\((docs/log/[^)]+)\)", index))
    found = set()
    for month in LOGS[1:]:
        _, *entries = re.split(r"^## ", month.read_text(), flags=re.MULTILINE)
        for entry in entries:
            title, *_, before, last = entry.strip().splitlines()
            assert not before, title
            assert re.match(r"(Adopted|Not adopted|Open): \S.*\.$", last), title
            found.add(f"docs/log/{month.name}#{anchor_of(title)}")
    assert found == named


def test_links_of_the_pages_outside_the_site_lead_somewhere():
    for page in [*TOP, LOGS[0]]:
        links = re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', page.read_text())
        for link in map("".join, links):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            there = page.parent / path if path else page
            assert there.is_file(), (page.name, link)
            if anchor:
                titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                assert anchor in map(anchor_of, titles), (page.name, link)


def test_python_call_of_the_readme_finds_what_a_model_read(
    tmp_path, monkeypatch, capsys
):
    (code,) = python_of(ROOT / "README.md")
    texts = any_engine.sentences(0)
    counts = any_engine.train("\n".join(texts) + "\n")
    monkeypatch.chdir(tmp_path)
    older = any_engine.engine(any_engine.train("\n".join(any_engine.sentences(1))))
    names = {"model": any_engine.engine(counts), "older_model": older}
    exec(code, {**names, "texts": texts})
    assert capsys.readouterr().out.startswith("contaminated ")
    assert (tmp_path / "runs/mine/report.html").is_file()


def test_every_method_has_a_page_with_its_formula_and_no_page_is_left_over():
    pages = {
        f"{page.parent.name}/{page.stem}": page.read_text().strip()
        for page in (DOCS / "methods").glob("*/*.md")
    }
    groups = grouped_methods()
    assert {*pages} == {
        f"{room}/{name}" for room, rows in groups.items() for name in rows
    }
    assert all(pages.values())
    assert set(FORMULAS) == METHODS
    assert all(line.isascii() for line in FORMULAS.values())
    rows = re.findall(r"^\| \[(\w+)\]\(\w+/\1\.md\)", overview(groups), re.M)
    assert sorted(rows) == sorted({*ROWS} - {*OWN})


def test_pages_name_the_next_steps_that_an_audit_names():
    row = {"method": "direction", "null": "reversibility", "verdict": "suspected"}
    test = order_result(**row, reasons=("no reference",), order_provenance="published")
    steps = next_steps(AuditedFile(test), ["audit", "m", "b.txt"], WORDS)
    flags = {step.flags[-2] if "DIR" in step.flags else step.flags[0] for step in steps}
    assert flags == {"--reference", "--order"}
    (short,) = re.findall(
        r"`suspected`.*?: (.*?)\. `", (ROOT / "README.md").read_text()
    )
    (full,) = re.findall(r"^\| `suspected` \| (.*) \|$", INDEX.read_text(), re.M)
    assert "reference" in short and all(flag in full for flag in flags)
    assert "membership" not in full + short and "replicate" not in full + short


def test_method_of_the_how_to_page_is_a_score():
    code, _ = python_of(DOCS / "how_to/own_method.md")
    names = {}
    exec(code, names)
    logprobs = np.array([[-2, -2], [-1, -3]], np.float32)
    ids = np.array([1, 2])
    flat, uneven = (ScoredText(text="a b", ids=ids, logprobs=own) for own in logprobs)
    assert isinstance(names["METHOD"], ScoreMethod)
    assert names["METHOD"].score(flat) == 0 > names["METHOD"].score(uneven) == -1


def test_page_of_commands_is_what_help_says():
    """Each command with its examples and every flag; the site hooks write it."""
    page = COMMANDS_PAGE.read_text(encoding="utf-8")
    assert page == commands_page(), "stale: python -m docs.site_hooks"
    assert re.findall(r"^\| \[(\w+)\]", page, re.M) == [*COMMANDS]
    helps = re.split(r"^## (?=\w+$)", page, flags=re.M)[1:]
    for (name, kind), said in zip(COMMANDS.items(), helps, strict=True):
        assert said.startswith(f"{name}\n") and "\x1b" not in said
        assert f"\njaxcontam {name}" in said.split("```bash")[1].split("```")[0]
        assert {*flags_of(kind)} <= {*re.findall(r"(--[\w-]+)", said)}


def test_files_of_the_table_of_the_papers_exist():
    """Each row names a place of the repository that is there."""
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!item|---).*\|$", page, flags=re.MULTILINE)
    assert all(len(re.split(r"(?<!\\)\|", row)) == 6 for row in rows)
    folders = "jaxcontam|train|eval|tests|docs|tpu_scripts|examples"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", page)
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []
