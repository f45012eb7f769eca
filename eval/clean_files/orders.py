"""`audit` of files in a drawn order, in natural order, and of options."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jaxcontam
from eval.clean_files.files import KINDS, NATURAL, Rows, texts
from eval.clean_files.findings import Cell, Finding
from eval.clean_files.readers import KERNELS, SCALES, Reader
from eval.natural_order.kind import loosened
from eval.natural_order.words import pseudoword
from jaxcontam.data.release import SEED_BYTES, make_release
from jaxcontam.errors import InputError
from jaxcontam.methods import TESTS
from jaxcontam.results import OrderResult
from jaxcontam.verdict import MIN_EFFECT, decide

_ORDER_TESTS = tuple(
    name
    for name in (
        *("direction", "adjacency", "stratified", "reversal", "permutation"),
        *("sharded_rank", "sharded_t"),
    )
    if name in TESTS
)
_NATURAL_KINDS = ("distinct", "zipf counts", "near-copies")
# The reference reads as well, or says the same in half the nats, or in a quarter.
_REFERENCES = (1.0, 0.5, 0.25)
# Share of rows that keep the place that their order gives them.
_KEPT = (1.0, 0.6, 0.3)


def without(names: Mapping[str, Any], *left_out: str) -> list[str]:
    """Names but some."""
    return [name for name in names if name not in left_out]


# A constant reader of orders is refused, and no option but one stands on a scale.
_READERS = without(KERNELS, "constant", "scale")


def released(seed: int, folder: Path) -> Iterator[Finding]:
    """A file in an order that `release` drew, beside its seed file."""
    kinds = without(KINDS, "blocks")
    rng, kind, kernel = drawn_cell("released", seed, kinds, _READERS)
    rows = KINDS[kind](rng)
    path = rows.written(folder / f"file{seed}", range(len(rows.lines)))
    sealed = path.with_suffix(".seed")
    data, seed_file = make_release(
        path,
        seed=rng.randbytes(SEED_BYTES),
        version="0",
        made="2026-01-01",
        no_header="no_header" in rows.flags,
    )
    path.write_bytes(data)
    sealed.write_bytes(seed_file.to_bytes())
    flags = {**rows.flags, "seed_file": sealed}
    yield from _audited("audit --seed-file", kind, kernel, seed, path, flags)


def shuffled(seed: int, folder: Path) -> Iterator[Finding]:
    """A file whose publisher drew its order, and says so."""
    rng, kind, kernel = drawn_cell("shuffled", seed, KINDS, _READERS)
    rows = KINDS[kind](rng)
    path = rows.written(folder / f"file{seed}", rows.drawn(rng))
    flags = {**rows.flags, "shuffled": True}
    yield from _audited("audit --shuffled", kind, kernel, seed, path, flags)


def natural(seed: int, folder: Path) -> Iterator[Finding]:
    """A file in an order that nobody drew, beside a reference as clean as the model."""
    kinds = [(kind, order) for kind in _NATURAL_KINDS for order in NATURAL]
    rng, (kind, order), kernel = drawn_cell("natural", seed, kinds, _READERS)
    lines = sorted(KINDS[kind](rng).lines, key=NATURAL[order])
    lines = loosened(rng, lines, rng.choice(_KEPT))
    rows = Rows(lines=tuple(lines))
    path = rows.written(folder / f"file{seed}", range(len(lines)))
    scale = rng.choice(_REFERENCES)
    cell = Cell(
        command="audit --reference",
        test="direction",
        kind=f"{kind} {order}",
        reader=kernel,
        holds=False,
    )
    try:
        found = jaxcontam.audit(
            Reader(kernel, seed),
            path,
            reference=Reader(kernel, seed + 1, scale=scale),
            progress=_silent,
        )
        yield Finding(cell=cell, p=found.p_value, verdict=found.verdict)
    except InputError:
        yield Finding(cell=cell, p=None, verdict=None)


def options(seed: int, folder: Path) -> Iterator[Finding]:
    """Multiple-choice items whose options stand in an order that was drawn, or not.

    Where it was, the owner says so; else a reference as clean as the model is asked.
    """
    rng, kind, kernel = drawn_cell("options", seed, ITEMS, KERNELS)
    items, flags, holds = ITEMS[kind](rng)
    path = folder / f"file{seed}.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items))
    scale = rng.choice(_REFERENCES)
    reference = None if holds else Reader(kernel, seed + 1, scale=scale)
    cell = Cell(command="audit", test="options", kind=kind, reader=kernel, holds=holds)
    try:
        found = jaxcontam.audit(
            Reader(kernel, seed),
            path,
            reference=reference,
            tests="options",
            template="{question}\n{options}",
            shuffled=holds,
            score_anyway=True,
            progress=_silent,
            **flags,
        )
        yield Finding(cell=cell, p=found.p_value, verdict=found.verdict)
    except InputError:
        yield Finding(cell=cell, p=None, verdict=None)


def drawn_cell(
    command: str, seed: int, kinds: Any, readers: Any
) -> tuple[Random, Any, str]:
    """A file's random state, kind and reader: each pair of these equally often."""
    kinds, readers = tuple(kinds), tuple(readers)
    reader = readers[seed // len(kinds) % len(readers)]
    return Random(f"{command} {seed}"), kinds[seed % len(kinds)], reader


def _audited(
    command: str,
    kind: str,
    kernel: str,
    seed: int,
    path: Path,
    flags: Mapping[str, Any],
) -> Iterator[Finding]:
    """What every test of orders says of a file, each as the one that decides."""
    rows = _rows(Reader(kernel, seed), path, flags, _ORDER_TESTS)
    for test in _ORDER_TESTS:
        cell = Cell(
            command=command,
            test=test,
            kind=kind,
            reader=kernel,
            holds=TESTS[test].validity == "exact",
        )
        if test not in rows:
            yield Finding(cell=cell, p=None, verdict=None)
            continue
        own = [
            dataclasses.replace(row, primary=row.method == test)
            for row in rows.values()
        ]
        decided = {one.method: one for one in decide(own, min_effect=MIN_EFFECT)}[test]
        p_value = decided.numbers.p_value
        yield Finding(cell=cell, p=p_value, verdict=decided.verdict)


def _rows(
    model: Reader, path: Path, flags: Mapping[str, Any], tests: Sequence[str]
) -> dict[str, OrderResult]:
    """Tests by name; those that a file is too small for, or refuses, are left out."""
    try:
        found = jaxcontam.audit(
            model, path, tests=tests, score_anyway=True, progress=_silent, **flags
        )
    except InputError:
        if len(tests) == 1:
            return {}
        parts = [_rows(model, path, flags, (test,)) for test in tests]
        return {name: row for part in parts for name, row in part.items()}
    return {row.method: row for row in found.results}


def _silent(done: int, total: int) -> None:
    """No bar."""


Items = tuple[list[dict[str, Any]], dict[str, Any], bool]
"""Records, fields of `AuditDesign`, and whether their options satisfy the null."""

_N_ITEMS = 24


def _item(rng: Random, options: Sequence[str], **more: Any) -> dict[str, Any]:
    question = f"Which {pseudoword(rng, 2)} is {pseudoword(rng, 2)}?"
    found = {"question": question, "options": list(options)}
    return {**found, "answer": rng.randrange(len(options)), **more}


def _any_options(rng: Random, n: int) -> list[str]:
    """Options of many lengths, in a drawn order."""
    return rng.sample(texts(rng, n, words=lambda i: i), n)


def _drawn(rng: Random) -> Items:
    return [_item(rng, _any_options(rng, 4)) for _ in range(_N_ITEMS)], {}, True


def _of_all_sizes(rng: Random) -> Items:
    sizes = [rng.choice((2, 3, 4, 5, 7)) for _ in range(_N_ITEMS)]
    return [_item(rng, _any_options(rng, n)) for n in sizes], {}, True


def _right_one_first(rng: Random) -> Items:
    items = [_item(rng, _any_options(rng, 4), answer=0) for _ in range(_N_ITEMS)]
    return items, {"fix_answer": True}, True


def _sorted_by_some(rng: Random) -> Items:
    """A third of the authors sort: what they sorted is left out."""
    items = []
    for i in range(_N_ITEMS):
        found = _any_options(rng, 4)
        items.append(_item(rng, sorted(found) if i % 3 == 0 else found))
    return items, {}, True


def _house_order(rng: Random) -> Items:
    """Sets of options that come again in the order in which they came first."""
    sets = [_any_options(rng, 4) for _ in range(12)]
    return [_item(rng, rng.choice(sets)) for _ in range(3 * _N_ITEMS)], {}, True


def _copied_items(rng: Random) -> Items:
    items = [_item(rng, _any_options(rng, 4)) for _ in range(16)]
    return (
        [item for i, item in enumerate(items) for _ in range(1 + 30 // (1 + i))],
        ({}),
        True,
    )


def _scale(rng: Random) -> Items:
    """Half of the items have their options in the order of what they measure."""
    items = []
    for i in range(_N_ITEMS):
        own = [f"{word} {pseudoword(rng, 2)}" for word in SCALES[i % len(SCALES)]]
        items.append(_item(rng, own if i % 2 else rng.sample(own, 4)))
    return items, {}, False


def _house_triple(rng: Random) -> Items:
    """Three options in the order of their scale, and a new one anywhere."""
    items = []
    for i in range(_N_ITEMS):
        own = list(SCALES[i % len(SCALES)][:3])
        own.insert(rng.randrange(4), pseudoword(rng, 2))
        items.append(_item(rng, own))
    return items, {}, False


def _short_ones_first(rng: Random) -> Items:
    """Options from short to long, but for one that moved."""
    items = []
    for _ in range(_N_ITEMS):
        own = sorted(_any_options(rng, 5), key=len)
        items.append(_item(rng, [*own[1:3], own[0], *own[3:]]))
    return items, {}, False


ITEMS: Mapping[str, Callable[[Random], Items]] = {
    "drawn": _drawn,
    "of all sizes": _of_all_sizes,
    "right one first": _right_one_first,
    "some sorted": _sorted_by_some,
    "house order": _house_order,
    "copies": _copied_items,
    "scale": _scale,
    "three of a house order": _house_triple,
    "nearly by length": _short_ones_first,
}
"""Kinds of files of multiple-choice items."""
