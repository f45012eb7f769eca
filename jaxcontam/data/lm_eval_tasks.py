"""Tasks of lm-evaluation-harness as benchmarks: `lm_eval:TASK[:SPLIT]`.

TASK is a name that the harness knows, or the path of a task's YAML file. An example is
the task's own text with its right answer, in the order of the split. Tasks can hold
Python code, which runs as it does in the harness.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxcontam.data.files import TASK_PREFIX, Provenance
from jaxcontam.data.tables import Record
from jaxcontam.errors import InputError, install_hint, unknown_name

_MOST_NAMED = 8
# For an answer of the hub, whatever it says.
_HUB_SECONDS = 10
# Name of an added column that shows how a task's code reorders rows.
_ROW = "_jaxcontam_row"


def read_task(word: str) -> tuple[str, list[Record], Provenance]:
    """Name of a task (`TASK-SPLIT`), its examples, and the provenance of their order.

    A few-shot part, an instruction and a chat template are left out: what is asked is
    whether the split was seen, not a prompt. The provenance is `unknown` where the
    task's code makes documents that no longer say which row they were; a task that puts
    its documents in another order than its dataset is refused.

    Args:
        word: `lm_eval:TASK` or `lm_eval:TASK:SPLIT`. SPLIT is a split of the task's
            dataset, or `training`, `validation`, `test` as the task uses them; without
            it the split that the harness would evaluate.
    """
    name, _, split = word.removeprefix(TASK_PREFIX).partition(":")
    if not name:
        raise InputError(f"{word}: not a task", hint="such as lm_eval:arc_easy:test")
    task = _loaded(name, word)
    split, docs = _numbered_split(task, split, word)
    numbers = [doc.pop(_ROW, None) for doc in docs]
    if None in numbers:
        provenance: Provenance = "unknown"
    elif any(a > b for a, b in itertools.pairwise(numbers)):
        raise InputError(
            f"{word}: the task orders its documents differently from the dataset",
            hint="export the split to a file in its published order",
        )
    else:
        # What a function of the task returns as a dataset is in its own order.
        is_made = callable(getattr(task.config, "custom_dataset", None))
        provenance = "unknown" if is_made else "published"
    records: list[Record] = []
    for number, doc in enumerate(docs, 1):
        where = f"{word}: document {number}"
        records.append((where, _text(task, doc, where), doc))
    return f"{task.task_name}-{split}", records, provenance


def _loaded(name: str, word: str) -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as e:
        raise InputError(
            f"{word}: the package lm_eval is not installed",
            hint=install_hint("lm-eval"),
        ) from e
    is_file = Path(name).is_file()
    # Its own tasks are some ten thousand files, and reading them takes seconds.
    manager = TaskManager(include_defaults=not is_file)
    if not is_file:
        _check_name(name, manager)
    try:
        with _offline_at_once() if not is_file else contextlib.nullcontext():
            tasks = manager.load([name])["tasks"]
    except Exception as e:  # datasets and tasks raise errors of any kind
        lines = str(e).strip().splitlines() or [type(e).__name__]
        raise InputError(f"{word}: the task cannot be loaded: {lines[0]}") from e
    if len(tasks) != 1:
        raise _is_group(name, list(tasks))
    (task,) = tasks.values()
    if getattr(task, "MULTIMODAL", False):
        raise InputError(f"{word}: the task has images or audio; only text is read")
    return task


@contextlib.contextmanager
def _offline_at_once() -> Iterator[None]:
    """Ask the hub once: where it cannot be reached, `datasets` tries for half a minute.

    What it has downloaded before is then read as with HF_HUB_OFFLINE=1.
    """
    from datasets import config
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    # HF_DATASETS_OFFLINE sets the second alone.
    if constants.HF_HUB_OFFLINE or config.HF_HUB_OFFLINE:
        yield
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_SECONDS)
    except Exception:  # requests and httpx each have types of their own
        constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = False


def _check_name(name: str, manager: Any) -> None:
    """Refuse a group of tasks before all of them are downloaded."""
    if name in manager.all_subtasks:
        return
    if name in manager.all_groups or name in manager.all_tags:
        inside = [task for task in manager.all_subtasks if task.startswith(name)]
        raise _is_group(name, inside)
    nearest = unknown_name("task of lm_eval", name, manager.all_subtasks)
    suggestion, _, _ = nearest.hint.partition("choices:")
    hint = "`lm_eval ls tasks` lists all"
    raise InputError(str(nearest), hint=f"{suggestion}{hint}")


def _is_group(name: str, tasks: list[str]) -> InputError:
    named = ", ".join(sorted(tasks)[:_MOST_NAMED])
    return InputError(
        f"{TASK_PREFIX}{name}: a group of tasks",
        hint=f"name one task, such as {named}" if named else "name one of its tasks",
    )


def _numbered_split(
    task: Any, split: str, word: str
) -> tuple[str, list[dict[str, Any]]]:
    """Name and documents of a split, with their rows' numbers in `_ROW` if they can."""
    dataset = getattr(task, "dataset", None)
    if isinstance(dataset, Mapping):
        task.dataset = {name: _numbered(rows) for name, rows in dataset.items()}
        try:
            name, docs = _split(task, split, word)
            return name, list(map(dict, docs))
        except InputError:
            raise
        except Exception:  # the task's own code, which did not expect the column
            task.dataset = dataset
    name, docs = _split(task, split, word)
    return name, list(map(dict, docs))


def _numbered(rows: Any) -> Any:
    """Rows with a column of their numbers, if they can have one."""
    from datasets import Dataset

    if not isinstance(rows, Dataset):
        return rows
    return rows.add_column(_ROW, list(range(len(rows))))  # type: ignore[call-arg]


def _split(task: Any, split: str, word: str) -> tuple[str, Any]:
    """Name and documents of a split."""
    roles: Mapping[str, tuple[Callable[[], bool], Callable[[], Any]]] = {
        "test": (task.has_test_docs, task.test_docs),
        "validation": (task.has_validation_docs, task.validation_docs),
        "training": (task.has_training_docs, task.training_docs),
    }
    dataset = getattr(task, "dataset", None)
    splits = dataset if isinstance(dataset, Mapping) else {}
    if split in splits:
        process = getattr(task.config, "process_docs", None)
        docs = splits[split]
        return split, docs if process is None else process(docs)
    there = [role for role, (has, _) in roles.items() if has()]
    if not split and there:
        split = there[0]
    if split not in there:
        if not split:
            raise InputError(f"{word}: the task has no documents")
        raise unknown_name(f"split of {word}", split, dict.fromkeys([*splits, *there]))
    return split, roles[split][1]()


def _text(task: Any, doc: Any, where: str) -> str:
    """Question and right answer, joined as the task joins them in its examples."""
    question, target = task.doc_to_text(doc), task.doc_to_target(doc)
    has_choices = getattr(task.config, "doc_to_choice", None) is not None
    choices = list(task.doc_to_choice(doc)) if has_choices else []
    try:
        # If the options are inside the question, `doc_to_text` is an index into them.
        question = choices[question] if isinstance(question, int) else question
        if choices and isinstance(target, int):
            target = choices[target]
        elif isinstance(target, Iterable) and not isinstance(target, str):
            target = next(iter(target), "")
    except IndexError as e:
        raise InputError(
            f"{where}: the answer's number exceeds the number of options"
        ) from e
    question, target = (
        "" if part is None else str(part) for part in (question, target)
    )
    if not question or not target:
        return question or target
    return f"{question}{getattr(task.config, 'target_delimiter', ' ')}{target}"
