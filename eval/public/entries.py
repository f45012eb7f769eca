r"""What the rows and columns of the table are: names, words and flags of each.

A word is a model or benchmark as `jaxcontam audit` takes it, or a .toml file with a
table for each, which names it and holds flags of its own:

    [boolq]
    benchmark = "boolq/dev.jsonl"
    template = "{passage}\n{question}"
"""

import dataclasses
import os
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jaxcontam.commands.audit import Audit
from jaxcontam.commands.device_flags import DeviceFlags
from jaxcontam.data.hub_splits import is_hub_split, parse_hub_split
from jaxcontam.data.lm_eval_tasks import TASK_PREFIX
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.scoring.api.address import PREFIX as API_PREFIX
from jaxcontam.scoring.opened import LM_EVAL_PREFIX

Kind = Literal["model", "benchmark"]

# Flags of the table as a whole: they stand on its own command line, or nowhere.
_OWN = {
    *("model", "benchmark", "out", "store", "no_store", "json", "dry_run"),
    *("seed", "min_effect", "shard", "distributed", "price_per_hour"),
}
_FIELDS = {field.name for field in dataclasses.fields(Audit)} - _OWN
_OF_MODEL = _FIELDS & {field.name for field in dataclasses.fields(DeviceFlags)}
_OF_MODEL |= {"dtype", "batch_tokens"}
FLAGS_OF: dict[Kind, frozenset[str]] = {
    "model": frozenset(_OF_MODEL),
    "benchmark": frozenset(_FIELDS - _OF_MODEL),
}
"""Flags of `jaxcontam audit` that a table of a .toml file may hold."""

# Words of models that hold commas of their own; benchmarks of lm_eval: hold none.
_WHOLE = (API_PREFIX, LM_EVAL_PREFIX)
_NO_FILES = (*_WHOLE, "hf:")

Flags = dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One row or column.

    Attributes:
        name: In the table and of its folder; letters, digits and `._-` alone.
        word: MODEL or BENCHMARK of `jaxcontam audit`.
        flags: Its own flags, by the names of their fields.
        place: What the user typed or wrote, for errors.
    """

    name: str
    word: str
    flags: Flags
    place: str


def read_entries(words: Sequence[str], kind: Kind) -> list[Entry]:
    """The models or benchmarks of the table, in the order given.

    Args:
        words: As typed after `--models` or `--benchmarks`: several with commas or
            spaces, .toml files among them. Models of `api:` and `lm_eval:` are told
            apart by spaces alone.
        kind: Which of the two they are.

    Raises:
        InputError: If there is none, a file is no table of tables, a flag is unknown,
            two would have one name, or commas join what they cannot.
    """
    found: list[Entry] = []
    for part in (part for word in words for part in _parts(word, kind)):
        if part.endswith(".toml"):
            found += _tables(Path(part), kind)
        else:
            found.append(_entry(part, kind))
    if not found:
        raise InputError(f"--{kind}s names none", hint="name at least one")
    found = _told_apart(found)
    names = Counter(entry.name for entry in found)
    if repeated := [entry for entry in found if names[entry.name] > 1]:
        raise InputError(
            f"two {kind}s are named {repeated[0].name!r} "
            f"({repeated[0].place}, {repeated[1].place})",
            hint=f"give each a name of its own in a .toml file of {kind}s",
        )
    return found


def _parts(word: str, kind: Kind) -> list[str]:
    if os.path.exists(word):
        return [word]
    parts = [part for part in word.split(",") if part]
    if kind == "benchmark":
        return parts
    if joined := [part for part in parts[1:] if part.startswith(_WHOLE)]:
        raise InputError(
            f"--models: {joined[0]!r} stands behind a comma",
            hint=f"spaces tell models of {' and '.join(_WHOLE)} from others, since "
            "their own words may hold commas",
        )
    return [word] if word.startswith(_WHOLE) else parts


def _entry(word: str, kind: Kind) -> Entry:
    if word.startswith(API_PREFIX):
        name = word.rpartition("#")[2]
    elif kind == "benchmark" and word.startswith(TASK_PREFIX):
        name = word.removeprefix(TASK_PREFIX)
    elif kind == "benchmark" and is_hub_split(word):
        name = parse_hub_split(word).name
    elif kind == "benchmark":
        name = Path(word).stem
    else:
        name = _folder(word).name
    return Entry(_slug(name), word, {}, word)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "unnamed"


def _folder(word: str) -> Path:
    """Folder of a model; training calls each one `model`, so take its parent."""
    path = Path(os.path.abspath(word))
    return path.parent if path.name == "model" else path


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """Files of one name in several folders are called by both: boolq-dev."""
    names = Counter(entry.name for entry in entries)
    return [
        dataclasses.replace(entry, name=_slug(f"{around}-{entry.name}"))
        if names[entry.name] > 1
        and entry.place == entry.word
        and not entry.word.startswith(_NO_FILES)
        and (around := _folder(entry.word).parent.name)
        else entry
        for entry in entries
    ]


def _tables(path: Path, kind: Kind) -> list[Entry]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"{path}: no such file ({e.strerror})") from e
    except ValueError as e:  # of TOML, and of UTF-8
        raise InputError(f"{path}: not TOML ({e})") from e
    return [_of_table(name, table, path, kind) for name, table in tables.items()]


def _of_table(name: str, table: object, path: Path, kind: Kind) -> Entry:
    place = f"{path}: [{name}]"
    if not isinstance(table, dict) or not isinstance(table.get(kind), str):
        raise InputError(
            f"{place}: no {kind}", hint=f'a table for each: [name], then {kind} = "..."'
        )
    flags = {key.replace("-", "_"): value for key, value in table.items()}
    word = str(flags.pop(kind))
    for key in flags:
        if key not in FLAGS_OF[kind]:
            fault = unknown_name(f"flag of a {kind}", key, sorted(FLAGS_OF[kind]))
            raise InputError(f"{place}: {fault}", hint=fault.hint)
    beside = path.parent / word
    # A hub name is no file, and a benchmark that is missing should be named in full.
    if not word.startswith(_NO_FILES) and (kind == "benchmark" or beside.exists()):
        word = str(beside)
    for key in ("seed_file", "tokenizer"):
        value = flags.get(key)
        if isinstance(value, str):
            flags[key] = str(path.parent / value)
        elif isinstance(value, list):
            flags[key] = [str(path.parent / str(one)) for one in value]
    if _slug(name) != name:
        raise InputError(
            f"{place}: a name has letters, digits and ._- alone",
            hint=f"such as [{_slug(name)}]",
        )
    return Entry(name, word, flags, place)
