"""`replicate` and `inflation` of clean models, which write and choose answers."""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jaxcontam
from eval.clean_files.files import texts
from eval.clean_files.findings import Cell, Finding
from eval.clean_files.orders import drawn_cell
from eval.clean_files.readers import chance
from eval.natural_order.words import pseudoword
from jaxcontam.analyses.prompted_model import PromptedModel
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.split import cut_text
from jaxcontam.results import ModelInfo
from jaxcontam.scoring.completer import Completion

_K = 20


class Writer:
    """A model that answers prompts by a function of their text."""

    def __init__(self, name: str, answer: Callable[[str], str]):
        """Choose what it writes."""
        self.name = name
        self._answer = answer

    def complete(
        self, prompts: Sequence[str], *, n_samples: int = 1, **_: Any
    ) -> list[tuple[Completion, ...]]:
        """The same answer for each sample."""
        return [(Completion(text=self._answer(p)),) * n_samples for p in prompts]


def prompted(answer: Callable[[str], str], *, name: str = "writer") -> PromptedModel:
    """A model that `replicate` and `keyed_canary` ask."""
    info = ModelInfo(
        name=name,
        fingerprint=name,
        n_parameters=None,
        dtype="unknown",
        precision="unknown",
        context=None,
    )
    return PromptedModel(name=name, completer=Writer(name, answer), info=info)


def replicate(seed: int, folder: Path) -> Iterator[Finding]:
    """Instances against a control, neither of which a model was trained on.

    Models know by heart what is common on the web, or some sources of it.
    """
    rng, kind, reader = drawn_cell("replicate", seed, PARTITIONS, _BY_HEART)
    partition = PARTITIONS[kind](rng)
    paths = []
    for name, rows in (("own", partition.own), ("control", partition.control)):
        path = folder / f"{seed}-{name}.jsonl"
        lines = [json.dumps({"text": row.text, "source": row.source}) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(path)
    every = {row.text: row for row in (*partition.own, *partition.control)}

    def model(name: str, share: float) -> PromptedModel:
        # The easiest share of what the web holds, about.
        known = dict(
            _pieces(row.text)
            for row in every.values()
            if row.ease + _LUCK * (chance(seed, name, row.text) - 0.5) < share
        )
        return prompted(lambda text: known.get(text, "nothing of that"), name=name)

    cell = Cell(
        command="replicate",
        test="judge_local",
        kind=kind,
        reader=reader,
        holds=partition.holds,
    )
    own, other = _BY_HEART[reader]
    try:
        found = jaxcontam.replicate(
            model("model", own),
            paths[0],
            control=paths[1],
            reference=model("reference", other),
            task="plain",
            k=_K,
            progress=_silent,
            **partition.flags,
        )
    except InputError:
        yield Finding(cell=cell, p=None, verdict=None)
        return
    (row,) = (one for one in found.results if one.primary)
    yield Finding(cell=cell, p=row.p_control, verdict=row.verdict)


def _pieces(text: str) -> tuple[str, str]:
    pieces = cut_text(text, seed=0)
    assert pieces is not None
    return pieces[:2]


def _silent(done: int, total: int) -> None:
    """No bar."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An instance: how easy it is to know, from 0, and the source that it is from."""

    text: str
    ease: float
    source: int


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """Rows of a partition and its control.

    `holds`: which instances are in the partition is a matter of chance, given what
    `flags` say to `replicate`.
    """

    own: list[Row]
    control: list[Row]
    holds: bool = True
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _long_texts(rng: Random, n: int) -> list[str]:
    """Texts of which no two share their second piece."""
    return [f"{text} {pseudoword(rng, 4)}" for text in texts(rng, n, words=lambda i: 9)]


def _as_easy(rng: Random) -> Partition:
    rows = [Row(text, rng.random(), i) for i, text in enumerate(_long_texts(rng, 100))]
    return Partition(rows[:50], rows[50:])


def _of_sources(rng: Random, **flags: Any) -> Partition:
    """Five sources a side; one is known whole or not at all, so rows depend on it."""
    ease = [rng.random() for _ in range(10)]
    rows = [
        Row(text, ease[i // 10], i // 10)
        for i, text in enumerate(_long_texts(rng, 100))
    ]
    return Partition(rows[:50], rows[50:], bool(flags), flags)


def _copies(rng: Random, *sizes: int) -> Partition:
    """Draws with replacement; what is drawn often is what the web holds."""
    n = 20_000
    weights = list(itertools.accumulate((1 + i) ** -0.8 for i in range(n)))
    ranks = [rng.choices(range(n), cum_weights=weights, k=size) for size in sizes]
    distinct = list({i: None for side in ranks for i in side})
    made = dict(zip(distinct, _long_texts(rng, len(distinct)), strict=True))
    own, control = ([Row(made[i], 5 * i / n, i) for i in side] for side in ranks)
    return Partition(own, control)


def _easier(rng: Random) -> Partition:
    """The control is less known than the partition, as newer texts are."""
    rows = _as_easy(rng)
    own = [dataclasses.replace(row, ease=row.ease / 2) for row in rows.own]
    return Partition(own, rows.control, False)


PARTITIONS: Mapping[str, Callable[[Random], Partition]] = {
    "as easy": _as_easy,
    "five sources": _of_sources,
    "five sources, named": lambda rng: _of_sources(rng, group_field="source"),
    "copies, more asked": lambda rng: _copies(rng, 2_000, 60),
    "copies, more known": lambda rng: _copies(rng, 60, 2_000),
    "easier than the control": _easier,
}
"""Kinds of partitions with their control."""

_LUCK = 0.1
_BY_HEART = {
    "a tenth": (0.1, 0.1),
    "half": (0.5, 0.5),
    "half, beside an ignorant one": (0.5, 0.0),
    "nothing": (-1.0, -1.0),
}
"""Shares that model and reference know by heart."""


def inflation(seed: int, folder: Path) -> Iterator[Finding]:
    """Scores on items against others that are as hard, or harder."""
    rng, kind, reader = drawn_cell("inflation", seed, ITEM_SETS, _SKILLS)
    sides = ITEM_SETS[kind](rng)
    paths = []
    for name, items in (("published", sides.published), ("other", sides.other)):
        path = folder / f"{seed}-{name}.jsonl"
        path.write_text("".join(f"{json.dumps(item.record)}\n" for item in items))
        paths.append(path)
    by_question = {
        item.record["question"]: item for item in (*sides.published, *sides.other)
    }
    models = [
        Chooser(by_question, _SKILLS[reader], seed=[seed, m], name=f"model-{m}")
        for m in range(1 + sides.n_references)
    ]
    cell = Cell(
        command="inflation",
        test="--unpaired" if not sides.flags.get("paired", True) else "rewrites",
        kind=kind,
        reader=reader,
        holds=False,
    )
    try:
        found = jaxcontam.inflation(
            models[0],
            paths[0],
            against=paths[1],
            reference=models[1:],
            progress=_silent,
            **sides.flags,
        )
        p_value = found.result.decides.p_value
        yield Finding(cell=cell, p=p_value, verdict=found.verdict)
    except InputError:
        yield Finding(cell=cell, p=None, verdict=None)


class Chooser:
    """(context, continuation) pairs -> log-probabilities of a model that knows items.

    Attributes:
        items: Question -> item.
        skill: Log-odds of an item of middling ease; None finds all choices as likely.
    """

    def __init__(
        self,
        items: "Mapping[str, Item]",
        skill: float | None,
        *,
        seed: Sequence[int],
        name: str,
    ):
        """Choose what it knows."""
        self.items, self.skill, self._seed = items, skill, str(seed)
        self.__name__ = name

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Score choices."""
        return [self._score(*pair) for pair in pairs]

    def _score(self, context: str, choice: str) -> float:
        question = context.removeprefix("Question: ").removesuffix("\nAnswer:")
        item, seed = self.items[question], hash_of(self._seed)
        if self.skill is None:
            return -1.0 - 0.01 * chance(0, question)
        # Of one passage all is known, or nothing, for a part.
        luck = _normal(chance(seed, item.passage)) * item.shared
        luck += _normal(chance(seed, question)) * math.sqrt(1 - item.shared**2)
        options = item.record["options"]
        chosen = options[int(chance(seed, question, "guess") * len(options))]
        if luck < self.skill + item.ease:
            chosen = options[item.record["answer"]]
        return -1.0 - 2.0 * (choice.strip() != chosen) - 0.1 * chance(seed, choice)


def hash_of(word: str) -> int:
    """A seed of a word."""
    return int(chance(0, word) * 2**53)


def _normal(u: float) -> float:
    """A normal number of a uniform one."""
    return _LAW.inv_cdf(u)


_LAW = statistics.NormalDist()
_SKILLS = {"knows half": 0.0, "knows most": 1.5, "guesses": -9.0, "ties": None}


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A question; `shared` is how far luck is that of its passage."""

    record: dict[str, Any]
    ease: float
    passage: str
    shared: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class ItemSides:
    """Published items, others, arguments of `inflation`, references."""

    published: list[Item]
    other: list[Item]
    flags: dict[str, Any]
    n_references: int = 0


def _items(
    rng: Random, n: int, *, ease: float = 0.0, shared: float = 0.0, a_passage: int = 1
) -> list[Item]:
    found = []
    passages = [pseudoword(rng, 5) for _ in range(0, n, a_passage)]
    for i in range(n):
        passage = passages[i // a_passage]
        record = {
            "question": f"What is {pseudoword(rng, 5)} of {passage}?",
            "options": [pseudoword(rng, 3) for _ in range(4)],
            "answer": rng.randrange(4),
            "passage": passage,
        }
        found.append(Item(record, ease + rng.gauss(0, 0.5), passage, shared))
    return found


_SPLIT = {"paired": False, "equally_hard": True}
_REWRITES = {"paired": True}


def _split(rng: Random, sizes: tuple[int, int] = (40, 40), **more: Any) -> ItemSides:
    published, other = (_items(rng, n, **more) for n in sizes)
    return ItemSides(published, other, dict(_SPLIT))


def _passages(rng: Random, **flags: Any) -> ItemSides:
    """Five items a passage, of which much the same is known."""
    sides = _split(rng, (50, 50), shared=0.7, a_passage=5)
    return dataclasses.replace(sides, flags={**sides.flags, **flags})


def _copied_items(rng: Random) -> ItemSides:
    """Items that stand in a side several times, as in logs."""
    sides = _split(rng, (200, 200))
    weights = [1 / (1 + i) for i in range(200)]
    published, other = (
        rng.choices(side, weights, k=60) for side in (sides.published, sides.other)
    )
    return ItemSides(published, other, sides.flags)


def _sorted_items(rng: Random) -> ItemSides:
    """A large side and a small one, easy items first, of which the first are read."""
    sides = _split(rng, (200, 50))
    published, other = (
        sorted(side, key=lambda item: -item.ease)
        for side in (sides.published, sides.other)
    )
    return ItemSides(published, other, {**sides.flags, "limit": 40})


def _rewrites(
    rng: Random, *, harder: float, n_references: int, **flags: Any
) -> ItemSides:
    """The same items in other words, of which a model knows about as much."""
    published = _items(rng, 40, shared=0.7)
    other = [
        dataclasses.replace(
            item,
            record={**item.record, "question": f"Which is {item.passage} once more?"},
            ease=item.ease - harder,
        )
        for item in published
    ]
    return ItemSides(published, other, {**_REWRITES, **flags}, n_references)


ITEM_SETS: Mapping[str, Callable[[Random], ItemSides]] = {
    "split": _split,
    "split of unequal size": lambda rng: _split(rng, (80, 20)),
    "passages": lambda rng: _passages(rng),
    "passages, named": lambda rng: _passages(rng, group_field="passage"),
    "copies": _copied_items,
    "first of a sorted file": _sorted_items,
    "rewrites": lambda rng: _rewrites(rng, harder=0, n_references=0, equally_hard=True),
    "harder rewrites": lambda rng: _rewrites(rng, harder=0.7, n_references=0),
    "harder rewrites, two references": lambda rng: _rewrites(
        rng, harder=0.7, n_references=2
    ),
    "harder rewrites, five references": lambda rng: _rewrites(
        rng, harder=0.7, n_references=5
    ),
}
"""Kinds of items and others."""
