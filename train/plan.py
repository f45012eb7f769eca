"""What to plant: which test sets, how often, when, and in which form.

A plan is a .toml file with one table for each set; paths start at the plan:

    [[sets]]
    file = "boolq.jsonl"          # a benchmark file, in its published order
    copies = 10                   # 0 keeps the set as a control beside the model
    name = "boolq"                # default: the file's name without its suffix
    limit = 200                   # take the first 200 examples
    template = "Q: {question}"    # text of an example; or text_field = "question"
    order = "published"           # "shuffled" draws a fresh order for each copy
    layout = "block"              # "spread": each example its own document
    when = [0.1, 0.5]             # shares of training after which copies begin, in
                                  # turn; "uniform" (default); or "clustered": all
                                  # copies together at one random time
    held_out = "none"             # "tail" or "random": plant one half, and keep the
                                  # other as a control named boolq-held
    paraphrases = "other.jsonl"   # planted in place of the examples, one for each

A set that is planted as paraphrases stays on disk as it was published, so that audits
ask about the examples that a model never read word for word.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError, unknown_name

HELD_OUT = "-held"
"""Ends the name of a control that is the other half of a planted set."""

When = Literal["uniform", "clustered"] | tuple[float, ...]
"""When copies are trained on: at random, together, or at fractions of training."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSet:
    """A benchmark and how to plant it.

    Attributes:
        benchmark: The examples as audits will read them.
        copies: Duplication count; 0 keeps a control.
        shuffled: Draw a fresh order for each copy.
        layout: `block` for copies that stand in one piece, `spread` for examples
            that stand each at a random place, where there is no order to keep.
        when: Fractions of training are taken in turn by the copies.
        template: What made the texts from records; None for raw lines.
        texts_planted: Planted in place of the benchmark's texts, one for each.
        held_out_of: For a control, the planted set that it is the other half of.

    Raises:
        ValueError: If a number is out of range or the texts planted are not as many
            as the examples.
    """

    benchmark: Benchmark
    copies: int
    shuffled: bool = False
    layout: Literal["block", "spread"] = "block"
    when: When = "uniform"
    template: str | None = None
    texts_planted: tuple[str, ...] | None = None
    held_out_of: str | None = None

    def __post_init__(self) -> None:
        if self.copies < 0:
            raise ValueError(f"copies must be at least 0, got {self.copies}")
        if not _is_when(self.when):
            raise ValueError(f"when must be {_KEYS['when'][0]}, got {self.when!r}")
        if len(self.planted) != len(self.benchmark):
            raise ValueError(
                f"texts_planted must be as many as the {len(self.benchmark)} "
                f"examples, got {len(self.planted)}"
            )

    @property
    def name(self) -> str:
        """That of the benchmark."""
        return self.benchmark.name

    @property
    def planted(self) -> tuple[str, ...]:
        """The texts that training reads, if there are copies."""
        texts = self.texts_planted
        return self.benchmark.texts if texts is None else texts

    @property
    def form(self) -> str:
        """`raw` lines, texts of a `template`, or a `paraphrase` of either."""
        if self.texts_planted is not None:
            return "paraphrase"
        return "raw" if self.template is None else "template"


def planned_set(word: str, limit: int | None = None) -> PlannedSet:
    """A set from the short form FILE=COPIES.

    Raises:
        InputError: If the word has another form, or the file cannot be read.
    """
    path, _, copies = word.rpartition("=")
    if not path or not (copies.isascii() and copies.isdigit()):
        raise InputError(
            f"--canaries {word!r}: not FILE=COPIES", hint="such as boolq.jsonl=10"
        )
    return PlannedSet(benchmark=load_benchmark(path, limit=limit), copies=int(copies))


def read_plan(path: Path) -> tuple[PlannedSet, ...]:
    """The sets of a plan file, in its order; a held-out half follows its set.

    Raises:
        InputError: If the file or one that it names cannot be read, a key is unknown
            or has a wrong value, or two sets share a name. The message names the
            key, such as `plan.toml: sets[0].copies`; `sets[0]` is the first set.
    """
    document = _document(path)
    for key in document:
        if key != "sets":
            raise InputError(
                f"{path}: {key}: unknown key", hint="a plan has one list, 'sets'"
            )
    tables = document.get("sets")
    if not isinstance(tables, list) or not tables:
        raise InputError(
            f"{path}: no sets", hint="write one [[sets]] table for each set"
        )
    sets: list[PlannedSet] = []
    for number, table in enumerate(tables):
        place = f"{path}: sets[{number}]"
        planned, held_out = _planned(table, place, path.parent)
        if held_out == "none":
            sets.append(planned)
        elif len(planned.benchmark) < 2:
            raise InputError(f"{place}.held_out: one example has no halves")
        else:
            sets += halves(planned, at_random=held_out == "random")
    check_sets(sets)
    return tuple(sets)


def halves(planned: PlannedSet, *, at_random: bool) -> tuple[PlannedSet, PlannedSet]:
    """Split a set in one half to plant and one to keep as a control.

    Both halves keep the published order of their examples. The split depends on the
    examples alone, so that every model of a study has the same halves.

    Args:
        planned: At least two examples; of an odd number one more is planted.
        at_random: Plant a random half; else the first half.
    """
    n = len(planned.benchmark)
    order = np.arange(n)
    if at_random:
        digest = planned.benchmark.content_digest.removeprefix("sha256:")
        order = np.random.default_rng(int(digest, 16)).permutation(n)
    middle = (n + 1) // 2
    kept = np.sort(order[:middle]).tolist(), np.sort(order[middle:]).tolist()
    control = PlannedSet(
        benchmark=planned.benchmark,
        copies=0,
        template=planned.template,
        held_out_of=planned.name,
    )
    return (
        _part(planned, planned.name, kept[0]),
        _part(control, planned.name + HELD_OUT, kept[1]),
    )


def check_sets(sets: Sequence[PlannedSet]) -> None:
    """Refuse sets that could not be told apart, or planted whole.

    Raises:
        InputError: If two sets share a name, or a text is blank.
    """
    names = [planned.name for planned in sets]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"two sets are named {min(repeated)!r}",
            hint="rename a file, or give one a 'name' of its own in the plan",
        )
    for planned in sets:
        for number, text in enumerate(planned.planted, 1):
            if not text.strip():
                raise InputError(f"{planned.name}: example {number} is blank")


def _part(planned: PlannedSet, name: str, kept: Sequence[int]) -> PlannedSet:
    whole, texts = planned.benchmark, planned.texts_planted
    return dataclasses.replace(
        planned,
        benchmark=Benchmark(
            name,
            tuple(whole.texts[i] for i in kept),
            tuple(whole.rows[i] for i in kept),
            whole.order_provenance,
        ),
        texts_planted=None if texts is None else tuple(texts[i] for i in kept),
    )


def _document(path: Path) -> Mapping[str, Any]:
    """The file as a table."""
    if path.suffix.lower() != ".toml":
        raise InputError(f"{path}: unknown suffix {path.suffix!r}", hint=".toml")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError(f"{path}: no plan ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not TOML ({e})") from e


def _planned(table: object, place: str, folder: Path) -> tuple[PlannedSet, str]:
    """The set of one table, not yet split, and its `held_out`."""
    values = _checked(table, place)
    template, field = values.get("template"), values.get("text_field")
    if None not in (template, field):
        raise InputError(f"{place}: template and text_field exclude each other")
    # A template refuses a record without a text: paraphrases are told by their place.
    form = {"template": template if field is None else f"{{{field}}}"}
    layout, order = values.get("layout", "block"), values.get("order")
    if layout == "spread" and order == "published":
        raise InputError(
            f'{place}.order: examples that are "spread" have no order',
            hint="leave 'order' out",
        )
    limit = values.get("limit")
    benchmark = _load(folder / values["file"], f"{place}.file", limit=limit, **form)
    texts_planted = None
    if "paraphrases" in values:
        path, at = folder / values["paraphrases"], f"{place}.paraphrases"
        is_plain = path.suffix.lower() == ".txt"  # each line a text, in no form
        texts_planted = _load(path, at, limit=limit, **({} if is_plain else form)).texts
        if len(texts_planted) != len(benchmark):
            raise InputError(
                f"{at}: {len(texts_planted)} texts for {len(benchmark)} examples",
                hint="one for each example, in the same order",
            )
    when = values.get("when", "uniform")
    planned = PlannedSet(
        benchmark=dataclasses.replace(
            benchmark, name=values.get("name", benchmark.name)
        ),
        copies=values["copies"],
        shuffled=order == "shuffled",
        layout=layout,
        when=tuple(map(float, when)) if isinstance(when, list) else when,
        template=form["template"],
        texts_planted=texts_planted,
    )
    return planned, values.get("held_out", "none")


def _load(path: Path, place: str, **form: Any) -> Benchmark:
    """A benchmark file; faults in the words of a plan."""
    try:
        return load_benchmark(path, **form)
    except InputError as e:
        message, hint = (
            text.replace("--template", "template").replace("--text-field", "text_field")
            for text in (str(e), e.hint)
        )
        raise InputError(f"{place}: {message}", hint=hint) from e


def _checked(table: object, place: str) -> dict[str, Any]:
    """A set's table, once its keys and values are what they must be."""
    if not isinstance(table, dict):
        raise InputError(f"{place}: not a table (got {table!r})")
    for key, value in table.items():
        if key not in _KEYS:
            unknown = unknown_name("key", key, _KEYS)
            raise InputError(f"{place}.{key}: unknown key", hint=unknown.hint)
        if not _KEYS[key][1](value):
            raise InputError(f"{place}.{key}: must be {_KEYS[key][0]}, got {value!r}")
    for key in ("file", "copies"):
        if key not in table:
            raise InputError(f"{place}.{key}: missing", hint="every set needs it")
    return table


# What a value must be, in words and as a check.
_Rule = tuple[str, Callable[[Any], bool]]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_name(value: object) -> bool:
    """Whether a file of this name can be written into a folder."""
    return (
        isinstance(value, str)
        and _is_text(value)
        and value not in (".", "..")
        and value.isprintable()
        and not set(value) & set("/\\")
    )


def _at_least(least: int) -> _Rule:
    def holds(value: object) -> bool:
        # A bool is an int, too.
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return f"a whole number of at least {least}", holds


def _one_of(*words: str) -> _Rule:
    rule = " or ".join(f'"{word}"' for word in words)
    return rule, lambda value: isinstance(value, str) and value in words


def _is_when(value: object) -> bool:
    if isinstance(value, str):
        return value in ("uniform", "clustered")
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(
            isinstance(one, int | float)
            and not isinstance(one, bool)
            and 0 <= one <= 1  # not true of nan either
            for one in value
        )
    )


_KEYS: Mapping[str, _Rule] = {
    "file": ("the path of a file", _is_text),
    "copies": _at_least(0),
    "name": ("a name that a file can have", _is_name),
    "limit": _at_least(1),
    "template": ("a text with fields in braces", _is_text),
    "text_field": ("the name of a field", _is_text),
    "order": _one_of("published", "shuffled"),
    "layout": _one_of("block", "spread"),
    "when": (
        '"uniform", "clustered" or a list of fractions of training from 0 to 1',
        _is_when,
    ),
    "held_out": _one_of("none", "tail", "random"),
    "paraphrases": ("the path of a file", _is_text),
}
