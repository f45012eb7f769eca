"""`membership` of texts that no model saw: two sides, or a set and a pool."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from eval.clean_files.files import texts
from eval.clean_files.findings import Cell, Finding
from eval.clean_files.orders import drawn_cell
from eval.clean_files.readers import Reader
from jaxcontam.analyses.known_texts import NONMEMBER, RunTexts, read_texts
from jaxcontam.analyses.membership_judging import JudgedRun, judged
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.score import Scores
from jaxcontam.results.membership import MembershipStudy

_NAMES = ("min_k", "loss", "zlib")
_READERS = ("frequency", "length", "noise", "cauchy", "discrete", "constant")
_SOURCE = 600
"""Distinct texts of a source with copies."""

_LEVEL = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two draws of one source.

    Attributes:
        rows: Text and document of each row, of each side.
        flags: Arguments of `read_texts`.
        frequency: Nats that a reader of the web gives a text for being common.
    """

    rows: tuple[Sequence[tuple[str, int]], Sequence[tuple[str, int]]]
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    frequency: Mapping[str, float]


def labelled(seed: int, folder: Path) -> Iterator[Finding]:
    """Members against non-members."""
    rng, kind, reader = drawn_cell("labelled", seed, SIDES, _READERS)
    sides = SIDES[kind](rng)
    cell = Cell(command="membership", test="labels", kind=kind, reader=reader)
    run = _run(sides, folder / str(seed), "members")
    found = _judged(run, _scores(run, sides, reader, seed), seed)
    yield _deciding(cell, found)


def asked(seed: int, folder: Path) -> Iterator[Finding]:
    """Texts in question against a pool: as a set, one of them, and the share seen."""
    rng, kind, reader = drawn_cell("asked", seed, SIDES, _READERS)
    sides = SIDES[kind](rng)
    cell = Cell(command="membership TEXTS", test="set", kind=kind, reader=reader)
    run = _run(sides, folder / str(seed), "texts")
    found = _judged(run, _scores(run, sides, reader, seed), seed)
    yield _deciding(cell, found)
    p_values = None if found is None else found.p_values
    p_values = np.array([]) if p_values is None else p_values
    p_values = p_values[np.isfinite(p_values)].tolist()
    yield Finding(
        cell=dataclasses.replace(cell, test="text"),
        p=rng.choice(p_values) if p_values else None,
        verdict=None,
    )
    seen = None if found is None else found.study.seen
    # The bound is above 0 no oftener than one time in twenty.
    yield Finding(
        cell=dataclasses.replace(cell, test="share seen"),
        p=None if seen is None else _LEVEL if seen.low > 0 else 1.0,
        verdict=None,
    )


def beside_reference(seed: int, folder: Path) -> Iterator[Finding]:
    """Both questions, beside a model that saw neither side; it may read less well."""
    kinds = [
        (question, shift, noise)
        for question in ("members", "texts")
        for shift in (0.0, 0.5)
        for noise in (0.5, 2.0)
    ]
    rng, (question, shift, noise), reader = drawn_cell(
        "reference", seed, kinds, ("noise",)
    )
    made = texts(rng, 160, words=lambda i: 8)
    rows = [(text, i) for i, text in enumerate(made)]
    sides = Sides(rows=(rows[:80], rows[80:]), frequency={})
    run = _run(sides, folder / str(seed), question)
    # One side is a little easier to read, for anybody.
    is_first = ~run.with_role(NONMEMBER)
    draws = np.random.default_rng([seed, 5])
    ease = draws.normal(size=len(made)) + shift * is_first
    own = ease[:, None] + 0.5 * draws.normal(size=(len(made), len(_NAMES)))
    theirs = ease[:, None] + noise * draws.normal(size=(len(made), 2))
    cell = Cell(
        command="membership --reference",
        test="labels" if question == "members" else "set",
        kind=f"shift {shift:g}, noise {noise:g}",
        reader=reader,
        holds=not shift,
    )
    yield _deciding(cell, _judged(run, Scores(_NAMES, own, theirs), seed))


def _judged(run: RunTexts, table: Scores, seed: int) -> JudgedRun | None:
    """What scores say of a run; None where too few texts are left."""
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
    nothing = np.zeros(len(run.texts), bool)
    try:
        return judged(run, table, nothing, study, seed=seed)
    except InputError:
        return None


def _deciding(cell: Cell, found: JudgedRun | None) -> Finding:
    """The row that decides; there is none where a set is too small."""
    rows = [] if found is None else [one for one in found.results if one.primary]
    if not rows:
        return Finding(cell=cell, p=None, verdict=None)
    return Finding(cell=cell, p=rows[0].p_value, verdict=rows[0].verdict)


def _run(sides: Sides, folder: Path, first: str) -> RunTexts:
    """Both sides as `membership` reads them; `first` is the word for the first one."""
    paths = []
    for name, rows in zip(("first", "second"), sides.rows, strict=True):
        path = folder.with_name(f"{folder.name}-{name}.jsonl")
        lines = [json.dumps({"text": text, "document": d}) for text, d in rows]
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(path)
    flags = {"text_field": "text", **sides.flags}
    in_question = paths[0] if first == "texts" else None
    members = paths[0] if first == "members" else None
    return read_texts(in_question, members=members, nonmembers=paths[1], **flags)


def _scores(run: RunTexts, sides: Sides, reader: str, seed: int) -> Scores:
    """Three scores of each text, NaN where it has no word."""
    model = Reader("noise" if reader == "frequency" else reader, seed)
    values = []
    for text in run.texts:
        own = model.of_text("", text)
        if reader == "frequency":
            own = sides.frequency.get(text, 0.0) + 0.01 * own
        other = Reader("noise", seed + 1).of_text("", text)
        row = (own, own / (1 + len(text)), other)
        values.append(row if text.strip() else (np.nan,) * len(row))
    return Scores(_NAMES, np.array(values, np.float64))


def _distinct(rng: Random, sizes: tuple[int, int] = (60, 40), **flags: Any) -> Sides:
    made = texts(rng, sum(sizes), words=lambda i: rng.randrange(3, 15))
    rows = [(text, i) for i, text in enumerate(made)]
    rows = (rows[: sizes[0]], rows[sizes[0] :])
    frequency = {text: rng.gauss(0, 1) for text in made}
    return Sides(rows=rows, flags=flags, frequency=frequency)


def _copies(
    rng: Random, sizes: tuple[int, int], *, a_document: int = 0, **flags: Any
) -> Sides:
    """Draws with replacement of texts of which some are much commoner."""
    made = texts(rng, _SOURCE, words=lambda i: 2 + i // 60)
    weights = [(1 + i) ** -0.7 for i in range(_SOURCE)]
    drawn = [rng.choices(made, weights, k=n) for n in sizes]
    rows = tuple(
        [(text, i // max(1, a_document)) for i, text in enumerate(side)]
        for side in drawn
    )
    frequency = {t: float(np.log(w)) for t, w in zip(made, weights, strict=True)}
    if a_document:
        flags["document_field"] = "document"
    return Sides(rows=(rows[0], rows[1]), flags=flags, frequency=frequency)


def _documents(rng: Random) -> Sides:
    """Four texts a document, about as easy as each other."""
    sides = _distinct(rng, (100, 100), document_field="document")
    ease = [rng.gauss(0, 1) for _ in range(200)]
    rows = tuple([(text, i // 4) for text, i in side] for side in sides.rows)
    frequency = {text: ease[d] + rng.gauss(0, 0.3) for side in rows for text, d in side}
    return dataclasses.replace(sides, rows=(rows[0], rows[1]), frequency=frequency)


def _sorted(rng: Random) -> Sides:
    """Each side from long to short, of which the first are read."""
    sides = _distinct(rng, (120, 40), limit=30)
    rows = [sorted(side, key=lambda row: -len(row[0])) for side in sides.rows]
    frequency = {text: len(text) / 10 for side in rows for text, _ in side}
    return dataclasses.replace(sides, rows=(rows[0], rows[1]), frequency=frequency)


def _with_blanks(rng: Random) -> Sides:
    sides = _distinct(rng)
    blank = [(text, 0) for text in ("", " ", "\t")] * 3
    return dataclasses.replace(
        sides, rows=([*sides.rows[0], *blank], [*blank, *sides.rows[1]])
    )


SIDES: Mapping[str, Callable[[Random], Sides]] = {
    "distinct": _distinct,
    "few": lambda rng: _distinct(rng, (4, 3)),
    "copies, as many": lambda rng: _copies(rng, (80, 80)),
    "copies, more asked": lambda rng: _copies(rng, (160, 40)),
    "copies, more known": lambda rng: _copies(rng, (40, 160)),
    "documents": _documents,
    "copies, some read": lambda rng: _copies(rng, (60, 480), limit=36),
    "copies in documents": lambda rng: _copies(rng, (160, 60), a_document=2),
    "first of a sorted file": _sorted,
    "blank": _with_blanks,
}
"""Kinds of sides."""
