"""`membership` of texts that no model saw: two sides, or a set and a pool."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.judging import JudgedRun, judged
from jaxcontam.members.known_texts import NONMEMBER, RunTexts, read_texts
from jaxcontam.members.result import MembershipStudy, Scores
from tests.support.clean_readers import Cell, Finding, Reader, drawn_cell, texts, write

_NAMES = ("min_k", "loss", "zlib")
_READERS = ("frequency", "length", "noise", "cauchy", "discrete", "constant")
# Distinct texts of a source with copies.
_SOURCE = 600
_LEVEL = 0.05


class Sides(NamedTuple):
    """Two draws of one source.

    Attributes:
        rows: Text and document of each row, of each side.
        flags: Arguments of `read_texts`.
        frequency: Nats that a reader of the web gives a text for being common.
    """

    rows: tuple[Sequence[tuple[str, int]], Sequence[tuple[str, int]]]
    flags: Mapping[str, Any]
    frequency: Mapping[str, float]


def labelled(seed: int, folder: Path) -> Iterator[Finding]:
    """Members against non-members."""
    rng, kind, reader = drawn_cell("labelled", seed, SIDES, _READERS)
    found = _asked(SIDES[kind](rng), folder / str(seed), "members", reader, seed)
    yield _deciding(Cell("membership", "labels", kind, reader), found)


def asked(seed: int, folder: Path) -> Iterator[Finding]:
    """Texts in question against a pool: as a set, one of them, and the share seen."""
    rng, kind, reader = drawn_cell("asked", seed, SIDES, _READERS)
    found = _asked(SIDES[kind](rng), folder / str(seed), "texts", reader, seed)
    yield _deciding(Cell("membership TEXTS", "set", kind, reader), found)
    p_values = None if found is None else found.p_values
    p_values = np.array([]) if p_values is None else p_values
    p_values = p_values[np.isfinite(p_values)].tolist()
    p = rng.choice(p_values) if p_values else None
    yield Finding(Cell("membership TEXTS", "text", kind, reader), p, None)
    seen = None if found is None else found.study.seen
    # The bound is above 0 no oftener than one time in twenty.
    p = None if seen is None else _LEVEL if seen.low > 0 else 1.0
    yield Finding(Cell("membership TEXTS", "share seen", kind, reader), p, None)


def beside_reference(seed: int, folder: Path) -> Iterator[Finding]:
    """Both questions, beside a model that saw neither side; it may read less well."""
    kinds = [
        (question, shift, noise)
        for question in ("members", "texts")
        for shift in (0.0, 0.5)
        for noise in (0.5, 2.0)
    ]
    rng, kind, reader = drawn_cell("reference", seed, kinds, ("noise",))
    question, shift, noise = kind
    made = texts(rng, 160, words=lambda i: 8)
    rows = [(text, i) for i, text in enumerate(made)]
    run = _run(Sides((rows[:80], rows[80:]), {}, {}), folder / str(seed), question)
    # One side is a little easier to read, for anybody.
    is_first = ~run.with_role(NONMEMBER)
    draws = np.random.default_rng([seed, 5])
    ease = draws.normal(size=len(made)) + shift * is_first
    own = ease[:, None] + 0.5 * draws.normal(size=(len(made), len(_NAMES)))
    theirs = ease[:, None] + noise * draws.normal(size=(len(made), 2))
    test, kind = "labels" if question == "members" else "set", f"shift {shift:g}, "
    kind += f"noise {noise:g}"
    cell = Cell("membership --reference", test, kind, reader, not shift)
    yield _deciding(cell, _judged(run, Scores(_NAMES, own, theirs), seed))


def _judged(run: RunTexts, table: Scores, seed: int) -> JudgedRun | None:
    """Judgement of a run's scores; None where too few texts are left."""
    study = MembershipStudy(
        name=run.name,
        fingerprint=run.fingerprint,
        primary=_NAMES[0],
        fprs=(_LEVEL,),
        convention="le",
        n_texts=len(run.texts),
        n_left_out=0,
        n_unscored=0,
        tokens_scored=0,
        cached_tokens=0,
    )
    try:
        return judged(run, table, np.zeros(len(run.texts), bool), study, seed=seed)
    except InputError:
        return None


def _deciding(cell: Cell, found: JudgedRun | None) -> Finding:
    """The row that decides; there is none where a set is too small."""
    rows = [] if found is None else [one for one in found.results if one.primary]
    if not rows:
        return Finding(cell, None, None)
    return Finding(cell, rows[0].p_value, rows[0].verdict)


def _run(sides: Sides, folder: Path, first: str) -> RunTexts:
    """Both sides as `membership` reads them; `first` is the word for the first one."""
    own, others = (
        write(
            folder.with_name(f"{folder.name}-{name}.jsonl"),
            ({"text": text, "document": d} for text, d in rows),
        )
        for name, rows in zip(("first", "second"), sides.rows, strict=True)
    )
    return read_texts(
        MembershipDesign(
            texts=own if first == "texts" else None,
            members=own if first == "members" else None,
            nonmembers=others,
            **{"text": "text", **sides.flags},
        )
    )


def _asked(
    sides: Sides, folder: Path, first: str, reader: str, seed: int
) -> JudgedRun | None:
    """Three scores of each text, NaN where it has no word."""
    run = _run(sides, folder, first)
    model = Reader("noise" if reader == "frequency" else reader, seed)
    values = []
    for text in run.texts:
        own = model.of_text("", text)
        if reader == "frequency":
            own = sides.frequency.get(text, 0.0) + 0.01 * own
        row = own, own / (1 + len(text)), Reader("noise", seed + 1).of_text("", text)
        values.append(row if text.strip() else (np.nan,) * len(row))
    return _judged(run, Scores(_NAMES, np.array(values, np.float64)), seed)


def _distinct(rng: Random, sizes: tuple[int, int] = (60, 40), **flags: Any) -> Sides:
    made = texts(rng, sum(sizes), words=lambda i: rng.randrange(3, 15))
    rows = [(text, i) for i, text in enumerate(made)]
    frequency = {text: rng.gauss(0, 1) for text in made}
    return Sides((rows[: sizes[0]], rows[sizes[0] :]), flags, frequency)


def _copies(rng: Random, *sizes: int, a_document: int = 0, **flags: Any) -> Sides:
    """Draws with replacement of texts of which some are much commoner."""
    made = texts(rng, _SOURCE, words=lambda i: 2 + i // 60)
    weights = [(1 + i) ** -0.7 for i in range(_SOURCE)]
    own, others = (
        [(text, i // max(1, a_document)) for i, text in enumerate(side)]
        for side in [rng.choices(made, weights, k=n) for n in sizes]
    )
    frequency = {t: float(np.log(w)) for t, w in zip(made, weights, strict=True)}
    if a_document:
        flags["fields"] = ("document=document",)
    return Sides((own, others), flags, frequency)


def _documents(rng: Random) -> Sides:
    """Four texts a document, about as easy as each other."""
    sides = _distinct(rng, (100, 100), fields=("document=document",))
    ease = [rng.gauss(0, 1) for _ in range(200)]
    own, others = ([(text, i // 4) for text, i in side] for side in sides.rows)
    frequency = {text: ease[d] + rng.gauss(0, 0.3) for text, d in (*own, *others)}
    return sides._replace(rows=(own, others), frequency=frequency)


def _sorted(rng: Random) -> Sides:
    """Each side from long to short, of which some are read."""
    sides = _distinct(rng, (120, 40), sample=30)
    own, others = (sorted(side, key=lambda row: -len(row[0])) for side in sides.rows)
    frequency = {text: len(text) / 10 for text, _ in (*own, *others)}
    return sides._replace(rows=(own, others), frequency=frequency)


def _with_blanks(rng: Random) -> Sides:
    sides = _distinct(rng)
    blank = [(text, 0) for text in ("", " ", "\t")] * 3
    return sides._replace(rows=([*sides.rows[0], *blank], [*blank, *sides.rows[1]]))


SIDES: Mapping[str, Callable[[Random], Sides]] = {
    "distinct": _distinct,
    "few": lambda rng: _distinct(rng, (4, 3)),
    "copies, as many": lambda rng: _copies(rng, 80, 80),
    "copies, more asked": lambda rng: _copies(rng, 160, 40),
    "copies, more known": lambda rng: _copies(rng, 40, 160),
    "documents": _documents,
    "copies, some read": lambda rng: _copies(rng, 60, 480, sample=36),
    "copies in documents": lambda rng: _copies(rng, 160, 60, a_document=2),
    "sorted, some read": _sorted,
    "blank": _with_blanks,
}
"""Kinds of sides."""
