"""What the site of the documentation takes from the code: commands and methods.

`python -m docs.site_hooks` writes `commands.md` again, which is what `--help` says: a
clone has it without the site.

MkDocs calls the rest while it builds (`mkdocs build --strict`). A page under
`methods/ROOM/` holds the formula of a method; title, table and place in the menu come
from the rows of the room's table.
"""

import contextlib
import io
import json
import os
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

from jaxcontam.cli.main import COMMANDS, main
from jaxcontam.members.score import ScoreMethod
from jaxcontam.methods import OWN, ROOMS
from jaxcontam.replication.page import ReplicationMethod
from jaxcontam.reports.kinds import COMMANDS as REPORTED
from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.read import json_schema

_QUESTIONS = {
    "orders": "Was this file read, in this order?",
    "members": "Which texts were seen?",
    "replication": "Does it write them by heart?",
    "ownership": "What will let me prove it later?",
}
"""Room -> its question, as the menu of mkdocs.yml has it."""
_FACTS = ("gives", "null", "needs", "cost", "setting", "finds", "source", "departure")
_TITLES = {
    "gives": "Gives",
    "null": "Assumes",
    "needs": "Needs",
    "cost": "Cost",
    "setting": "Setting",
    "finds": "Finds",
    "source": "Source",
    "departure": "Not as in the authors' code",
}


def facts_of(row: Any) -> dict[str, str]:
    """What a row of a table of methods says, by the names of `_FACTS`."""
    facts = {name: getattr(row, name, "") for name in _FACTS}
    if isinstance(row, ScoreMethod):
        facts["gives"] = "a ranking: higher is more likely a member"
        facts["null"] = "nothing, and so it proves nothing"
    elif not isinstance(row, ReplicationMethod):
        facts["gives"] = f"a p-value, {row.validity}"
    return {name: text for name, text in facts.items() if text}


def grouped_methods() -> dict[str, dict[str, dict[str, str]]]:
    """Room -> name of a method -> its facts."""
    return {
        room: {
            name: facts_of(row) for name, row in ROOMS[room].items() if name not in OWN
        }
        for room in _QUESTIONS
    }


def on_config(config: Any) -> Any:
    """Put a page for each method into the menu."""
    methods = {
        _QUESTIONS[room]: [{name: f"methods/{room}/{name}.md"} for name in rows]
        for room, rows in grouped_methods().items()
    }
    for entry in config["nav"]:
        ((title, part),) = entry.items()
        if title in methods:
            part.append({"Methods": methods.pop(title)})
    assert not methods, f"no question of the menu: {methods}"
    return config


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Add what stands in no folder: schemas, the log's index."""
    # Part of MkDocs, which tests of these functions do without.
    from mkdocs.structure.files import File

    for name in REPORTED:
        text = json.dumps(json_schema(kind_of([name]).report), indent=1)
        files.append(File.generated(config, f"schema/{name}.json", content=text))
    index = Path(__file__).parents[1].joinpath("LOG.md").read_text(encoding="utf-8")
    text = index.replace("](docs/log/", "](")
    files.append(File.generated(config, "log/index.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Head a method's page with its facts; fill the table of all methods."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if name == "report_fields":
        return markdown.replace("<!-- fields -->", field_tables())
    groups = grouped_methods()
    if (folder, name) == ("methods", "index"):
        return markdown.replace("<!-- methods -->", overview(groups))
    of_methods, _, room = folder.partition("/")
    if of_methods != "methods":
        return markdown
    table = "\n".join(
        f"| **{_TITLES[fact]}** | {_cell(text)} |"
        for fact, text in groups[room][name].items()
    )
    return f"# {name}\n\n| | |\n|---|---|\n{table}\n\n## Formula\n\n{markdown}"


def field_tables() -> str:
    """A table a class of results, as the reader of reports knows it."""
    schemas = {name: json_schema(kind_of([name]).report) for name in REPORTED}
    said, parts = set(), []
    for schema in schemas.values():
        title = schema["title"]
        of = [
            f"[{name}](schema/{name}.json)"
            for name, one in schemas.items()
            if one["title"] == title
        ]
        head = f"Of {', '.join(of)}. "
        for name, one in {title: schema, **schema["$defs"]}.items():
            if name in said:
                continue
            said.add(name)
            about = (head if name == title else "") + one["description"]
            parts += [
                f"## {name}",
                "",
                about,
                "",
                "| field | type | |",
                "|---|---|---|",
            ]
            for field, kind in one["properties"].items():
                words = _cell(kind.get("description", ""))
                parts.append(f"| `{field}` | {_cell(_type_words(kind))} | {words} |")
            parts.append("")
    return "\n".join(parts)


def _type_words(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type_words(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "items" in schema:
        return f"list of {_type_words(schema['items'])}"
    return schema.get("type", "any")


COMMANDS_PAGE = Path(__file__).with_name("commands.md")
_ABOUT_COMMANDS = """# Commands

What `jaxcontam COMMAND --help` prints: examples, then every flag with its type and
default. `python -m docs.site_hooks` writes this page from the code.
"""
_EXIT_CODES = (
    "Exit codes: 0 done, 2 bad input, 3 not all could be scored or verified, 130 "
    "interrupted.\n"
)
# Columns of the lines in boxes.
_WIDTH = "100"


def commands_page() -> str:
    """The page of all commands."""
    rows = ["| command | does |", "|---|---|"]
    for name, kind in COMMANDS.items():
        (does, *_) = (kind.__doc__ or "").splitlines()
        rows.append(f"| [{name}](#{name}) | {_cell(does)} |")
    table = "\n".join(rows) + "\n"
    helps = map(command_help, COMMANDS)
    return "\n".join([_ABOUT_COMMANDS, table, _EXIT_CODES, *helps])


def command_help(name: str) -> str:
    """What `--help` says of a command: examples, then flags with type and default."""
    # Frames are drawn in hyphens on a stream whose encoding is not known.
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        mock.patch.dict(os.environ, {"COLUMNS": _WIDTH}),
        contextlib.redirect_stdout(said),
    ):
        main([name, "--help"])
    said.seek(0)
    usage, *lines = said.read().strip().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("╭"))
    about, _, examples = "\n".join(lines[:begin]).partition("Examples:\n")
    parts = [f"## {name}", "", about.strip(), "", "```text", usage, "```"]
    parts += ["", "```bash", textwrap.dedent(examples).strip(), "```"]
    for line in lines[begin:]:
        if line.startswith("╭"):
            parts += ["", f"{line.strip('╭─╮ ').capitalize()}:", "", "```text"]
        elif line.startswith("╰"):
            parts.append("```")
        else:
            parts.append(line.strip("│").rstrip()[1:])
    return "\n".join(parts) + "\n"


def overview(groups: dict[str, dict[str, dict[str, str]]]) -> str:
    """A table a room."""
    lines = []
    for room, rows in groups.items():
        lines += [
            f"## {_QUESTIONS[room]}",
            "",
            "| method | gives | assumes | cost | finds |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| [{name}]({room}/{name}.md) | {_cell(facts['gives'])} "
            f"| {_cell(facts.get('null', ''))} | {_cell(facts['cost'])} "
            f"| {_cell(facts['finds'])} |"
            for name, facts in rows.items()
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text of a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    COMMANDS_PAGE.write_text(commands_page(), encoding="utf-8")
