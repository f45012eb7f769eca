"""Guided and general instructions: templates that are data, filled without surprises.

A template's places are those of the paper's table 3. Texts of instances may hold
braces; they are put in as they are.
"""

import dataclasses
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.replication.instance import Instance

TASKS = ("classification", "nli", "summary", "one-sentence", "plain")
"""Kinds of instances; `plain` shows the first piece alone, for base models."""

_PLACES = ("split_name", "dataset_name", "input", "label")
_PLACE = re.compile(r"\{(\w+)\}")
_ARMS = ("guided", "general")
_OWN = Path(__file__).parent / "prompts.toml"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Both instructions of a task; the guided one names the dataset and the split.

    `version` is the name of the set, the task, and a digest of both templates.
    """

    task: str
    guided: str
    general: str
    version: str

    @property
    def has_arms(self) -> bool:
        """False where both instructions are the same, so nothing can be compared."""
        return self.guided != self.general

    def guided_prompt(
        self, instance: Instance, *, dataset_name: str, split_name: str
    ) -> str:
        """The prompt that names where the instance comes from."""
        names = {"dataset_name": dataset_name, "split_name": split_name}
        return _filled(self.guided, instance, names)

    def general_prompt(self, instance: Instance) -> str:
        """The prompt that asks for any continuation."""
        return _filled(self.general, instance, {})


def load_prompts(task: str, path: Path | None = None) -> Prompts:
    """The instructions of a task: ours, or those of a file of the same shape.

    The file is .toml or .json: `name`, and for each task `guided` and `general` with
    `{input}`.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, table 3: its elements in other words.
    """
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    where = "prompts.toml" if path is None else str(path)
    tables = _own() if path is None else _read(path)
    table = tables.get(task)
    if not isinstance(table, dict):
        known = [name for name in TASKS if isinstance(tables.get(name), dict)]
        raise InputError(
            f"{where}: no templates of task {task!r} (it has: {', '.join(known)})",
            hint=f"add [{task}] with guided = ... and general = ...",
        )
    templates = {arm: _template(where, task, table, arm) for arm in _ARMS}
    # Only what tells the two arms apart may differ between them in this respect.
    if templates["guided"] != templates["general"]:
        if "{dataset_name}" not in templates["guided"]:
            raise InputError(f"{where}: {task}.guided: no place {{dataset_name}}")
        for place in ("dataset_name", "split_name"):
            if f"{{{place}}}" in templates["general"]:
                raise InputError(
                    f"{where}: {task}.general: has the place {{{place}}}",
                    hint="the general instruction must not name the partition",
                )
    words = json.dumps([templates[arm] for arm in _ARMS]).encode()
    digest = hashlib.sha256(words).hexdigest()[:12]
    name = tables.get("name") or Path(where).stem
    return Prompts(task=task, version=f"{name}/{task}@{digest}", **templates)


def _template(where: str, task: str, table: Mapping[str, object], arm: str) -> str:
    template = table.get(arm)
    if not isinstance(template, str):
        raise InputError(f"{where}: {task}.{arm}: must be a text")
    for name in _PLACE.findall(template):
        if name not in _PLACES:
            raise InputError(
                f"{where}: {task}.{arm}: unknown place {{{name}}}",
                hint="places: " + " ".join(f"{{{place}}}" for place in _PLACES),
            )
    if "{input}" not in template:
        raise InputError(f"{where}: {task}.{arm}: no place {{input}}")
    for line in template.split("\n"):
        if "{label}" in line and "{input}" in line:
            raise InputError(
                f"{where}: {task}.{arm}: {{label}} and {{input}} in one line",
                hint="the label's line is left out where an instance has no label",
            )
    return template.removeprefix("\n").rstrip("\n")


def _filled(template: str, instance: Instance, names: Mapping[str, str]) -> str:
    """Each place once, so that places inside the texts put in stay what they are."""
    if instance.label is None:
        lines = template.split("\n")
        template = "\n".join(line for line in lines if "{label}" not in line)
    values = {
        "input": instance.first_piece,
        "label": instance.label or "",
        **names,
    }
    return _PLACE.sub(lambda place: values[place[1]], template)


@functools.cache
def _own() -> Mapping[str, object]:
    return tomllib.loads(_OWN.read_text(encoding="utf-8"))


def _read(path: Path) -> Mapping[str, object]:
    if path.suffix not in (".toml", ".json"):
        raise InputError(f"{path}: prompts are a .toml or a .json file")
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not {path.suffix[1:]} ({e})") from e
    if not isinstance(tables, dict):
        raise InputError(f"{path}: must hold tables of templates, one a task")
    if not isinstance(tables.get("name", ""), str):
        raise InputError(f"{path}: name must be a text")
    return tables
