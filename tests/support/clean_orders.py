"""`audit` of files in a drawn order."""

import dataclasses
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jaxcontam
from eval.natural_order.words import pseudoword
from jaxcontam.data.release import SEED_BYTES, make_release
from jaxcontam.errors import InputError
from jaxcontam.orders.methods import TESTS
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.result import OrderResult
from jaxcontam.proof.verdict import decide
from tests.support.clean_readers import (
    KERNELS,
    Cell,
    Finding,
    Reader,
    drawn_cell,
    silent,
    texts,
    write,
)

# Texts of a file, copies apart.
_COMMON = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Source lines of a file before it is published.

    Attributes:
        lines: In the order of the pool: commoner texts first.
        suffix: Of the file.
        flags: Fields of `AuditDesign` that its audit needs.
        groups: What keeps its place, one value a line: lines of a group trade places
            among themselves, and those of a block move together.
    """

    lines: tuple[str, ...]
    suffix: str = ".txt"
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    groups: tuple[int, ...] | None = None

    def written(self, path: Path, order: Sequence[int]) -> Path:
        """The file with its lines in an order."""
        return write(path.with_suffix(self.suffix), (self.lines[i] for i in order))

    def drawn(self, rng: Random) -> list[int]:
        """An order that is as likely as any other that the null has."""
        everything = list(range(len(self.lines)))
        if self.groups is None:
            return rng.sample(everything, len(everything))
        of_group = [
            [i for i in everything if self.groups[i] == group]
            for group in dict.fromkeys(self.groups)
        ]
        if "block_field" in self.flags:
            blocks = rng.sample(of_group, len(of_group))
            return [i for block in blocks for i in block]
        order = everything
        for places in of_group:
            for place, i in zip(places, rng.sample(places, len(places)), strict=True):
                order[place] = i
        return order


def _rarer_is_longer(i: int) -> int:
    """Frequent queries are short."""
    return 1 + i


def _copied(rng: Random, counts: Sequence[int]) -> list[str]:
    made = texts(rng, len(counts), words=_rarer_is_longer)
    return [text for text, n in zip(made, counts, strict=True) for _ in range(n)]


def _zipf(n: int, most: int) -> list[int]:
    return [max(1, most // (1 + i)) for i in range(n)]


def _lines(lines: Iterable[str], **flags: Any) -> Rows:
    return Rows(lines=tuple(lines), flags=flags)


def _counts(*counts: int) -> Callable[[Random], Rows]:
    """Texts with so many copies each."""
    return lambda rng: _lines(_copied(rng, counts))


def _distinct(rng: Random) -> Rows:
    return _lines(texts(rng, _COMMON, words=lambda i: int(rng.expovariate(0.2))))


def _equal_lengths(rng: Random) -> Rows:
    made = [text.ljust(60, ".")[:60] for text in texts(rng, 32, words=lambda i: 9)]
    return _lines(made + made[:8] * 3)


def _limit(rng: Random) -> Rows:
    made = _copied(rng, _zipf(_COMMON, 60))
    return _lines(made, limit=len(made) // 3)


def _near_copies(rng: Random) -> Rows:
    """The same text with another capital, space or mark."""
    forms: tuple[Callable[[str], str], ...] = (
        str,
        str.capitalize,
        lambda text: f"{text}.",
        lambda text: text.replace(" ", "  ", 1),
        lambda text: f"{text} ",
    )
    made = _copied(rng, _zipf(12, 30))
    return _lines(rng.choice(forms)(text) for text in made)


def _look_alikes(rng: Random) -> Rows:
    """Texts that look the same and are not, copies of each."""
    forms: tuple[Callable[[str], str], ...] = (
        str,
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: text.replace("a", "\u0430"),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace(" ", " \u200b"),
    )
    made = [f"caf\u00e9 {text}" for text in texts(rng, 10, words=_rarer_is_longer)]
    looks = [form(text) for text in made for form in forms]
    counts = _zipf(len(looks), 60)
    return _lines(t for t, n in zip(looks, counts, strict=True) for _ in range(n))


def _records(rows: Iterable[dict[str, Any]], groups: Any = None, **flags: Any) -> Rows:
    lines = tuple(map(json.dumps, rows))
    return Rows(lines=lines, suffix=".jsonl", flags=flags, groups=groups)


def _blank(rng: Random) -> Rows:
    """Empty and nearly empty texts, which are many in forms that people fill in."""
    empty = [text for text in ("", " ", "\t", ".", "-", "?") for _ in range(9)]
    made = [*empty, *_copied(rng, _zipf(24, 12))]
    return _records(({"text": text} for text in made), text="text")


def _questions(rng: Random) -> list[dict[str, Any]]:
    """Questions on passages; popular passages, which are short, have more."""
    contexts = texts(rng, 24, words=_rarer_is_longer)
    return [
        {"context": context, "question": f"What of {pseudoword(rng, 2)}?", "id": i}
        for i, (context, n) in enumerate(zip(contexts, _zipf(24, 40), strict=True))
        for _ in range(n)
    ]


def _groups(rng: Random) -> Rows:
    """Rows with labels, some of which no other row has; texts stand under several."""
    made = rng.sample(found := _copied(rng, _zipf(30, 12)), len(found))
    groups = tuple(i if i < 4 else rng.choice((-1, -1, -2)) for i in range(len(made)))
    pairs = zip(made, groups, strict=True)
    rows = ({"text": text, "label": label} for text, label in pairs)
    return _records(rows, groups, text="text", group_field="label")


def _blocks(rng: Random) -> Rows:
    """Passages with their questions, popular ones first."""
    rows = _questions(rng)
    groups = tuple(row["id"] for row in rows)
    flags = {"text": "question", "block_field": "id", "limit": len(rows) // 2}
    return _records(rows, groups, **flags)


def _cut(rng: Random) -> Rows:
    """Long texts with few beginnings: what is cut off is all that tells them apart."""
    starts = texts(rng, 8, words=lambda i: 1)
    made = [f"{rng.choice(starts)} {text}" for text in _copied(rng, _zipf(32, 16))]
    return _lines(made, max_example_tokens=14)


def _no_header(rng: Random) -> Rows:
    """A table without names of columns, shortest rows first."""
    made = sorted(texts(rng, 24, words=lambda i: i), key=len)
    lines = tuple(f"{i},{text}" for i, text in enumerate(made))
    return Rows(lines=lines, suffix=".csv", flags={"no_header": True})


KINDS: Mapping[str, Callable[[Random], Rows]] = {
    "distinct": _distinct,
    "equal counts": _counts(*[3] * 32),
    "zipf counts": _counts(*_zipf(_COMMON, 400)),
    "powers of two": _counts(*[2**i for i in range(11, -1, -1)]),
    "powers of three": _counts(*[3**i for i in range(7, -1, -1)]),
    "dominant": _counts(60, *[1] * 39),
    "near-copies": _near_copies,
    "look-alikes": _look_alikes,
    "equal lengths": _equal_lengths,
    "two rows": _counts(7, 1),
    "three rows": _counts(9, 3, 1),
    "blank": _blank,
    "contexts": lambda rng: _records(_questions(rng), text="context"),
    "groups": _groups,
    "limit": _limit,
    "cut": _cut,
    "no header": _no_header,
    "blocks": _blocks,
}
"""Kinds of files by name."""

_WANTED = "direction adjacency stratified reversal permutation sharded_rank sharded_t"
_ORDER_TESTS = tuple(name for name in _WANTED.split() if name in TESTS)
# A constant reader of orders is refused.
_READERS = [name for name in KERNELS if name != "constant"]


def released(seed: int, folder: Path) -> Iterator[Finding]:
    """A file in an order that `release` drew, beside its seed file."""
    kinds = [kind for kind in KINDS if kind != "blocks"]
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
    flags = {**rows.flags, "order": sealed}
    yield from _audited(("audit --order FILE", kind, kernel), seed, path, flags)


def shuffled(seed: int, folder: Path) -> Iterator[Finding]:
    """A file whose publisher drew its order, and says so."""
    rng, kind, kernel = drawn_cell("shuffled", seed, KINDS, _READERS)
    rows = KINDS[kind](rng)
    path = rows.written(folder / f"file{seed}", rows.drawn(rng))
    flags = {**rows.flags, "order": "random"}
    yield from _audited(("audit --order random", kind, kernel), seed, path, flags)


def _audited(
    names: tuple[str, str, str], seed: int, path: Path, flags: Mapping[str, Any]
) -> Iterator[Finding]:
    """Findings of every order test on a file, each as the deciding one."""
    command, kind, kernel = names
    rows = _rows(Reader(kernel, seed), path, flags, _ORDER_TESTS)
    for test in _ORDER_TESTS:
        cell = Cell(command, test, kind, kernel, TESTS[test].validity == "exact")
        if test not in rows:
            yield Finding(cell, None, None)
            continue
        own = [
            dataclasses.replace(row, primary=row.method == test)
            for row in rows.values()
        ]
        decided = {one.method: one for one in decide(own, min_effect=MIN_EFFECT)}[test]
        yield Finding(cell, decided.numbers.p_value, decided.verdict)


def _rows(
    model: Reader, path: Path, flags: Mapping[str, Any], tests: Sequence[str]
) -> dict[str, OrderResult]:
    """Tests by name; those that a file is too small for, or refuses, are left out."""
    try:
        order = ("anyway", *([flags["order"]] if "order" in flags else []))
        asked = {**flags, "tests": tests, "order": order}
        found = jaxcontam.audit(model, path, progress=silent, **asked)
    except InputError:
        if len(tests) == 1:
            return {}
        parts = [_rows(model, path, flags, (test,)) for test in tests]
        return {name: row for part in parts for name, row in part.items()}
    return {row.method: row for row in found.results}
