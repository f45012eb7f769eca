"""`replicate` and `inflation` of clean models, which write and choose answers."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import jaxcontam
from eval.clean_files import findings
from eval.clean_files.findings import Cell, Finding, drawn_cell, silent
from eval.clean_files.readers import chance, texts, write
from eval.natural_order.words import pseudoword
from jaxcontam.replication.instances import cut_text
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.prompted_model import PromptedModel


class Writer(NamedTuple):
    """A model that goes on with the texts that it knows."""

    name: str
    known: Mapping[str, str]

    def complete(
        self, prompts: Sequence[str], *, n_samples: int = 1, **_: Any
    ) -> list[tuple[Completion, ...]]:
        """The same answer for each sample."""
        answers = (self.known.get(prompt, "nothing of that") for prompt in prompts)
        return [(Completion(text=answer),) * n_samples for answer in answers]


def replicate(seed: int, folder: Path) -> Iterator[Finding]:
    """Instances against a control, neither of which a model was trained on.

    Models know by heart what is common on the web, or some sources of it.
    """
    rng, kind, reader = drawn_cell("replicate", seed, PARTITIONS, _BY_HEART)
    holds, flags, make = PARTITIONS[kind]
    sides = make(rng)
    own, control = (
        write(
            folder / f"{seed}-{name}.jsonl",
            ({"text": row.text, "source": row.source} for row in rows),
        )
        for name, rows in zip(("own", "control"), sides, strict=True)
    )
    every = {row.text: row for side in sides for row in side}

    def model(name: str, share: float) -> PromptedModel:
        # The easiest share of what the web holds, about.
        known = dict(
            (cut_text(row.text, seed=0) or ("", ""))[:2]
            for row in every.values()
            if row.ease + 0.1 * (chance(seed, name, row.text) - 0.5) < share
        )
        info = ModelInfo(
            name=name,
            fingerprint=name,
            n_parameters=None,
            dtype="unknown",
            precision="unknown",
            context=None,
        )
        return PromptedModel(name=name, completer=Writer(name, known), info=info)

    def ask() -> tuple[float | None, str | None]:
        knows, reference_knows = _BY_HEART[reader]
        found = jaxcontam.replicate(
            model("model", knows),
            own,
            control=control,
            reference=model("reference", reference_knows),
            task="plain",
            progress=silent,
            **flags,
        )
        (row,) = (one for one in found.results if one.primary)
        return row.p_control, row.verdict

    yield findings.asked(Cell("replicate", "judge_local", kind, reader, holds), ask)


class Row(NamedTuple):
    """An instance: how easy it is to know, from 0, and the source that it is from."""

    text: str
    ease: float
    source: int


Rows = tuple[list[Row], list[Row]]
"""A partition and its control."""


def _long_texts(rng: Random, n: int) -> list[str]:
    """Texts of which no two share their second piece."""
    return [f"{text} {pseudoword(rng, 4)}" for text in texts(rng, n, words=lambda i: 9)]


def _as_easy(rng: Random, *, easier: float = 1.0) -> Rows:
    """The partition may be easier than its control, as older texts are."""
    rows = [Row(text, rng.random(), i) for i, text in enumerate(_long_texts(rng, 100))]
    return [row._replace(ease=row.ease * easier) for row in rows[:50]], rows[50:]


def _of_sources(rng: Random) -> Rows:
    """Five sources a side; one is known whole or not at all, so rows depend on it."""
    ease = [rng.random() for _ in range(10)]
    made = enumerate(_long_texts(rng, 100))
    rows = [Row(text, ease[i // 10], i // 10) for i, text in made]
    return rows[:50], rows[50:]


def _copies(rng: Random, *sizes: int) -> Rows:
    """Draws with replacement; what is drawn often is what the web holds."""
    n = 20_000
    weights = list(itertools.accumulate((1 + i) ** -0.8 for i in range(n)))
    ranks = [rng.choices(range(n), cum_weights=weights, k=size) for size in sizes]
    distinct = list({i: None for side in ranks for i in side})
    made = dict(zip(distinct, _long_texts(rng, len(distinct)), strict=True))
    own, control = ([Row(made[i], 5 * i / n, i) for i in side] for side in ranks)
    return own, control


PARTITIONS: Mapping[str, tuple[bool, dict[str, Any], Callable[[Random], Rows]]] = {
    "as easy": (True, {}, _as_easy),
    "five sources": (False, {}, _of_sources),
    "five sources, named": (True, {"fields": ("document=source",)}, _of_sources),
    "copies, more asked": (True, {}, lambda rng: _copies(rng, 2_000, 60)),
    "copies, more known": (True, {}, lambda rng: _copies(rng, 60, 2_000)),
    "easier than the control": (False, {}, lambda rng: _as_easy(rng, easier=0.5)),
}
"""Kinds of partitions with their control: whether it is a matter of chance which
instances are in the partition, given the arguments of `replicate` that follow."""

# Shares that model and reference know by heart.
_BY_HEART = {
    "a tenth": (0.1, 0.1),
    "half": (0.5, 0.5),
    "half, beside an ignorant one": (0.5, 0.0),
    "nothing": (-1.0, -1.0),
}


class Item(NamedTuple):
    """A question; `shared` is how far luck is that of its passage."""

    record: dict[str, Any]
    ease: float
    passage: str
    shared: float


class Items(NamedTuple):
    """Published items, others, arguments of `inflation`, references."""

    published: list[Item]
    other: list[Item]
    flags: dict[str, Any]
    n_references: int = 0


def inflation(seed: int, folder: Path) -> Iterator[Finding]:
    """Scores on items against others that are as hard, or harder."""
    rng, kind, reader = drawn_cell("inflation", seed, ITEM_SETS, _SKILLS)
    made = ITEM_SETS[kind](rng)
    sides = {"published": made.published, "other": made.other}
    own, against = (
        write(folder / f"{seed}-{name}.jsonl", (item.record for item in items))
        for name, items in sides.items()
    )
    known = {item.record["question"]: item for side in sides.values() for item in side}
    model, *references = (
        chooser(known, _SKILLS[reader], seed=[seed, m], name=f"model-{m}")
        for m in range(1 + made.n_references)
    )

    def ask() -> tuple[float | None, str | None]:
        found = jaxcontam.inflation(
            model,
            own,
            against=against,
            references=references,
            progress=silent,
            **made.flags,
        )
        return found.result.decides.p_value, found.verdict

    test = "--unpaired" if made.flags["unpaired"] else "rewrites"
    yield findings.asked(Cell("inflation", test, kind, reader, False), ask)


def chooser(
    items: Mapping[str, Item], skill: float | None, *, seed: Sequence[int], name: str
) -> Callable[[Sequence[tuple[str, str]]], list[float]]:
    """(context, continuation) pairs -> log-probabilities of a model that knows items.

    `items` are by question; `skill` is the log-odds of an item of middling ease, None
    finds all choices as likely.
    """
    own_seed = int(chance(0, str(seed)) * 2**53)
    normal = statistics.NormalDist()

    def score(context: str, choice: str) -> float:
        question = context.removeprefix("Question: ").removesuffix("\nAnswer:")
        item = items[question]
        if skill is None:
            return -1.0 - 0.01 * chance(0, question)
        # Of one passage all is known, or nothing, for a part.
        luck = normal.inv_cdf(chance(own_seed, item.passage)) * item.shared
        alone = normal.inv_cdf(chance(own_seed, question))
        luck += alone * math.sqrt(1 - item.shared**2)
        options = item.record["options"]
        chosen = options[int(chance(own_seed, question, "guess") * len(options))]
        if luck < skill + item.ease:
            chosen = options[item.record["answer"]]
        noise = 0.1 * chance(own_seed, choice)
        return -1.0 - 2.0 * (choice.strip() != chosen) - noise

    def model(pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [score(*pair) for pair in pairs]

    model.__name__ = name
    return model


_SKILLS = {"knows half": 0.0, "knows most": 1.5, "guesses": -9.0, "ties": None}


def _items(rng: Random, n: int, *, shared: float = 0.0, a_passage: int = 1) -> list:
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
        found.append(Item(record, rng.gauss(0, 0.5), passage, shared))
    return found


def _split(rng: Random, *sizes: int, flags: Any = None, **more: Any) -> Items:
    published, other = (_items(rng, n, **more) for n in sizes)
    flags = {"unpaired": True, "equally_hard": True, **(flags or {})}
    return Items(published, other, flags)


def _passages(rng: Random, **flags: Any) -> Items:
    """Five items a passage, of which much the same is known."""
    return _split(rng, 50, 50, shared=0.7, a_passage=5, flags=flags)


def _copied_items(rng: Random) -> Items:
    """Items that stand in a side several times, as in logs."""
    sides = _split(rng, 200, 200)
    weights = [1 / (1 + i) for i in range(200)]
    published = rng.choices(sides.published, weights, k=60)
    return Items(published, rng.choices(sides.other, weights, k=60), sides.flags)


def _sorted_items(rng: Random) -> Items:
    """A large side and a small one, easy items first, of which the first are read."""
    sides = _split(rng, 200, 50, flags={"limit": 40})
    published, other = (
        sorted(side, key=lambda item: -item.ease)
        for side in (sides.published, sides.other)
    )
    return Items(published, other, sides.flags)


def _rewrites(rng: Random, harder: float, n_references: int, **flags: Any) -> Items:
    """The same items in other words, of which a model knows about as much."""
    published = _items(rng, 40, shared=0.7)
    other = [
        item._replace(
            record={**item.record, "question": f"Which is {item.passage} once more?"},
            ease=item.ease - harder,
        )
        for item in published
    ]
    return Items(published, other, {"unpaired": False, **flags}, n_references)


ITEM_SETS: Mapping[str, Callable[[Random], Items]] = {
    "split": lambda rng: _split(rng, 40, 40),
    "split of unequal size": lambda rng: _split(rng, 80, 20),
    "passages": _passages,
    "passages, named": lambda rng: _passages(rng, fields=("document=passage",)),
    "copies": _copied_items,
    "first of a sorted file": _sorted_items,
    "rewrites": lambda rng: _rewrites(rng, 0, 0, equally_hard=True),
    "harder rewrites": lambda rng: _rewrites(rng, 0.7, 0),
    "harder rewrites, two references": lambda rng: _rewrites(rng, 0.7, 2),
    "harder rewrites, five references": lambda rng: _rewrites(rng, 0.7, 5),
}
"""Kinds of items and others."""
