"""What `--help` shows first: one screen a command, with examples and the usual flags.

`--help-all` shows every flag. What a flag says is read from the command's own file, so
that nothing is written twice.
"""

import ast
import dataclasses
import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

_COLUMN, _WIDTH = 26, 100


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """First help of a command.

    Attributes:
        examples: Lines after `jaxcontam NAME`, each with what it does.
        flags: Fields that most users want, in the order in which they are shown.
    """

    examples: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()


PAGES: Mapping[str, Page] = {
    "audit": Page(
        (
            ("MODEL_DIR benchmark.jsonl --dry-run", "what it costs and could find"),
            ("MODEL_DIR benchmark.jsonl", "p-value, verdict, report"),
            ("MODEL_DIR mmlu.jsonl --group-field subject", ""),
            (
                "api:https://host/v1#NAME benchmark.jsonl --tokenizer DIR",
                "a served model",
            ),
        ),
        (
            "effort",
            "tests",
            "group_field",
            "block_field",
            "template",
            "limit",
            "dtype",
            "out",
            "dry_run",
        ),
    ),
    "membership": Page(
        (
            ("MODEL_DIR wikimia.jsonl", "a file with labels"),
            ("MODEL_DIR --members seen.txt --nonmembers unseen.txt", "two files"),
            ("MODEL_DIR texts.txt --nonmembers unseen.txt", "texts in question"),
            ("MODEL_DIR wikimia.jsonl --reference OTHER_DIR", "beyond `suspected`"),
        ),
        (
            "members",
            "nonmembers",
            "label_field",
            "document_field",
            "scores",
            "reference",
            "limit",
            "dtype",
            "out",
            "dry_run",
        ),
    ),
    "replicate": Page(
        (
            (
                "MODEL_DIR rte.jsonl --task nli --dataset-name RTE --split-name "
                "validation",
                "",
            ),
            ("api:https://host/v1#NAME ag_news.csv --dry-run", "its price"),
            ("MODEL_DIR lines.txt --task plain", "a base model"),
            ("--recorded completions.csv", "judge what was asked elsewhere"),
        ),
        (
            "dataset_name",
            "split_name",
            "task",
            "k",
            "control",
            "label_field",
            "compare",
            "budget",
            "out",
            "dry_run",
        ),
    ),
    "prove": Page(
        (("matrix.csv", "a row a stratum, the published version first"),),
        ("scores", "boundaries", "min_effect", "seed", "out", "json"),
    ),
    "plan": Page(
        (
            ("--effect 0.5 --sd 4 --examples 1000", "power of so many examples"),
            ("--pilot runs/pilot --power 0.9", "from a small audit"),
        ),
        ("effect", "sd", "pilot", "examples", "power", "level", "tests", "json"),
    ),
    "calibrate": Page(
        (("MODEL_DIR benchmark.jsonl --tests reversal", "rejections of null orders"),),
        ("tests", "draws", "group_field", "limit", "out", "json"),
    ),
    "score": Page(
        (("MODEL_DIR texts.txt --out scores.jsonl", "a row a text"),),
        ("out", "template", "text_field", "limit", "dtype"),
    ),
    "overlap": Page(
        (("corpus/ benchmark.jsonl", "which examples stand in the corpus"),),
        ("text_field", "template", "limit", "out", "json"),
    ),
    "canary": Page(
        (
            (
                "--make 5 --n-held-out 4995 --secret s.txt --held-out h.txt",
                "draw them",
            ),
            ("MODEL_DIR --secret s.txt --held-out h.txt", "later: were they read?"),
        ),
        ("make", "n_held_out", "secret", "held_out", "kind", "template", "out"),
    ),
    "variants": Page(
        (("MODEL_DIR texts.jsonl --randomised", "published against other wordings"),),
        ("randomised", "text_field", "variants_field", "limit", "out", "json"),
    ),
    "books": Page(
        (
            ("MODEL_DIR books/ --known-members old/ --known-nonmembers new/", ""),
            ("MODEL_DIR books/ --known snippets.jsonl", "snippets with labels"),
        ),
        ("known_members", "known_nonmembers", "known", "snippets", "words", "out"),
    ),
    "unlearning": Page(
        (
            ("ORIGINAL_DIR UNLEARNED_DIR book.txt", "what the model still knows"),
            ("ORIGINAL_DIR UNLEARNED_DIR book.txt --complete", "and still writes"),
        ),
        ("complete", "questions", "words", "ratio", "judge", "limit", "out"),
    ),
    "release": Page(
        (
            ("test.jsonl --seed-file test.seed.json", "a secret random order"),
            ("test-released.jsonl --seed-file test.seed.json --check", ""),
        ),
        ("seed_file", "out", "check"),
    ),
    "verify": Page((("runs/audit/FOLDER", "every number again, without the model"),)),
    "report": Page(
        (
            ("runs/audit/FOLDER", "report.html and results.csv, from report.json"),
            (
                "runs/audit/FOLDER --database-row --source org/name",
                "rows for the public database",
            ),
        ),
        ("database_row", "dataset", "source", "split_percent", "reference"),
    ),
    "compare": Page(
        (
            ("runs/audit/STEP-1000 runs/audit/STEP-2000", "checkpoints side by side"),
            ("runs/a runs/b runs/c --out runs/compare/abc", "three models"),
        ),
        ("out",),
    ),
    "doctor": Page(
        (
            ("", "this machine"),
            ("MODEL_DIR benchmark.jsonl", "and what is to be audited"),
        ),
    ),
    "methods": Page((("", "every method: what it needs, gives and finds"),)),
}
"""By command."""


def page_asked(
    words: Sequence[str], prog: str, command: type, page: Page
) -> str | None:
    """The help that words ask for; None where they ask for none.

    Args:
        words: As typed after `prog`.
        prog: As typed before the flags.
        command: Its dataclass.
        page: Examples, and the flags that `--help` shows.
    """
    if "--help-all" in words:
        return page_of(prog, command, page, has_all=True)
    return page_of(prog, command, page) if {"-h", "--help"} & set(words) else None


def page_of(prog: str, command: type, page: Page, *, has_all: bool = False) -> str:
    """Help of a command that is started by the words `prog`; by default one screen.

    Args:
        prog: As typed before the flags.
        command: Its dataclass.
        page: Examples and flags to show.
        has_all: Show every flag instead, those of the command itself first.
    """
    width = min(_WIDTH, shutil.get_terminal_size().columns)
    said = field_docs(command)
    fields = {field.name: field for field in dataclasses.fields(command)}
    words = words_of_fields(command)
    places = [key for key in fields if words[key][0].isupper()]
    usage = " ".join(_usage_of(fields[key], words[key]) for key in places)
    usage += " [FLAGS]" if len(fields) > len(places) else ""
    lines = [f"usage: {prog} {usage}".replace("  ", " ").rstrip(), ""]
    lines += [(command.__doc__ or "").splitlines()[0], "", "examples:"]
    lines += [
        line
        for words_after, what in page.examples
        for line in _example(f"{prog} {words_after}".rstrip(), what, width)
    ]
    if places:
        lines += [""]
        lines += [line for key in places for line in _row(words[key], said[key], width)]
    flags = page.flags
    if has_all:
        # Those that commands share come last.
        flags = [key for key in fields if key not in places]
        flags.sort(key=lambda key: key not in command.__annotations__)
    if flags:
        lines += ["", "flags:"]
        lines += [
            line
            for key in flags
            for line in _row(words[key], said[key] + _default_of(fields[key]), width)
        ]
    n_others = len(fields) - len(places) - len(flags)
    if n_others:
        lines += ["", f"{n_others} more flags: {prog} --help-all"]
    return "\n".join(lines)


def field_docs(command: type) -> dict[str, str]:
    """Name of each field -> the text under it, of the class and of those it extends."""
    docs: dict[str, str] = {}
    for one in reversed(command.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(text, ast.Expr):
                continue
            if isinstance(field.target, ast.Name) and isinstance(
                text.value, ast.Constant
            ):
                docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def words_of_fields(command: type) -> dict[str, str]:
    """Name of each field -> its flag and the kind of its value, or a word's name."""
    return {field.name: _words_of(field) for field in dataclasses.fields(command)}


def _words_of(field: dataclasses.Field) -> str:
    """A flag with the kind of its value, or the name of a word without one."""
    kind = field.type
    while (marks := getattr(kind, "__metadata__", ())) or typing.get_origin(kind) in (
        types.UnionType,
        typing.Union,
    ):
        if tyro.conf.Positional in marks:
            names = [m.metavar for m in marks if getattr(m, "metavar", None)]
            return names[0] if names else field.name.upper()
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    flag = "--" + field.name.replace("_", "-")
    return f"{flag} {value}" if (value := _value_of(kind)) else flag


def _default_of(field: dataclasses.Field) -> str:
    """What a flag is where it is left out, if a reader can use that."""
    default = field.default
    if _is_needed(field):
        return " (required)"
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    if isinstance(default, bool) or not isinstance(default, str | int | float | Path):
        return ""
    return f" (default: {default})" if str(default).strip() else ""


def _value_of(kind: Any) -> str:
    """What is typed after a flag; nothing after a switch."""
    if typing.get_origin(kind) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(kind))) + "}"
    if typing.get_origin(kind) is tuple:
        return f"{_value_of(typing.get_args(kind)[0])} ..."
    names = {bool: "", int: "N", float: "X", str: "WORD"}
    return names.get(kind, "PATH")


def _usage_of(field: dataclasses.Field, word: str) -> str:
    """A positional word; in brackets where it may be left out."""
    return word if _is_needed(field) else f"[{word}]"


def _is_needed(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _row(words: str, text: str, width: int) -> list[str]:
    """A flag and what it does; the text begins on the next line under a long flag."""
    room = max(20, width - _COLUMN)
    told = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    head = f"  {words}"
    if len(head) >= _COLUMN:
        return [head, *(" " * _COLUMN + line for line in told)]
    return [head.ljust(_COLUMN) + told[0], *(" " * _COLUMN + line for line in told[1:])]


def _example(line: str, what: str, width: int) -> list[str]:
    """A command line, and what it does beside it where there is room."""
    if not what:
        return [f"  {line}"]
    if len(line) + len(what) + 8 <= width:
        return [f"  {line}   # {what}"]
    return [f"  # {what}", f"  {line}"]
