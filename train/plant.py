"""What to plant, and where: plan files, the packed stream, the order of its rows.

A plan is a .toml file with one table for each set; paths start at the plan:

    [[sets]]
    file = "boolq.jsonl"          # a benchmark file, in its published order
    copies = 10                   # 0 keeps the set as a control beside the model;
                                  # "poisson:2.5" draws the copies of each example:
                                  # sets boolq-1, boolq-2 and so on, control boolq-0
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

Dimension key
    N  ids of the stream
    C  spans: stretches of ids
    R  training rows
    T  targets a row
"""

import dataclasses
import hashlib
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError, unknown_name
from train.options import Rule
from train.tokens import Documents

HELD_OUT = "-held"
"""Ends the name of a control that is the other half of a planted set."""

When = Literal["uniform", "clustered"] | tuple[float, ...]
"""When copies are trained on: at random, together, or at fractions of training."""

_Span = tuple[int, int]
"""Place of the first id of a stretch of the stream, and number of its ids."""
_POISSON = re.compile(r"poisson:(\d{1,4}(?:\.\d{1,9})?)", re.ASCII)
# Ids that go by at a time where a stream is read as a whole.
_BLOCK = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSet:
    """A benchmark and how to plant it; at 0 copies it is a control.

    Attributes:
        layout: `block` for copies that stand in one piece, `spread` for examples
            that stand each at a random place, where there is no order to keep.
        when: Fractions of training are taken in turn by the copies.
        template: What made the texts from records; None for raw lines.
        texts_planted: Planted in place of the benchmark's texts, one for each.
        held_out_of: For a control, the planted set that it is the other half of.
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
    """A set from the short form FILE=COPIES."""
    path, _, copies = word.rpartition("=")
    if not path or not (copies.isascii() and copies.isdigit()):
        raise InputError(
            f"--canaries {word!r}: not FILE=COPIES", hint="such as boolq.jsonl=10"
        )
    return PlannedSet(benchmark=load_benchmark(path, limit=limit), copies=int(copies))


def read_plan(path: Path) -> tuple[PlannedSet, ...]:
    """The sets of a plan file, in its order; parts of a set stand together.

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
        sets += _planned(table, f"{path}: sets[{number}]", path.parent)
    check_sets(sets)
    return tuple(sets)


def halves(planned: PlannedSet, *, at_random: bool) -> tuple[PlannedSet, PlannedSet]:
    """Split a set in one half to plant (the first one, or a random one) and a control.

    Both keep the published order of their examples. The split depends on the examples
    alone, so that every model of a study has the same halves.
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


def drawn_copies(planned: PlannedSet, mean: float) -> tuple[PlannedSet, ...]:
    """Split a set by copies that are drawn for each example from Poisson(mean).

    Those with 0 copies are a control; equal texts have one draw. Sets are named by
    their copies, such as boolq-0, and keep the published order. Draws depend on the
    examples alone, so that every model of a study has the same sets.
    """
    digest = planned.benchmark.content_digest.removeprefix("sha256:")
    rng = np.random.default_rng([int(digest, 16), 1])
    index = {text: i for i, text in enumerate(dict.fromkeys(planned.benchmark.texts))}
    drawn = rng.poisson(mean, len(index))
    copies_N = drawn[[index[text] for text in planned.benchmark.texts]]
    return tuple(
        _part(
            dataclasses.replace(planned, copies=copies),
            f"{planned.name}-{copies}",
            np.flatnonzero(copies_N == copies).tolist(),
        )
        for copies in np.unique(copies_N).tolist()
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


def _planned(table: object, place: str, folder: Path) -> tuple[PlannedSet, ...]:
    """The set of one table, or the sets that it is split into."""
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
    copies, held_out = values["copies"], values.get("held_out", "none")
    mean = _poisson_mean(copies)
    if mean is not None and layout != "spread":
        raise InputError(
            f"{place}.copies: {copies!r} is drawn for each example by itself",
            hint='add layout = "spread"',
        )
    if mean is not None and held_out != "none":
        raise InputError(
            f"{place}.held_out: {copies!r} has a control, the examples drawn 0 times",
            hint="leave 'held_out' out",
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
        copies=copies if mean is None else 1,
        shuffled=order == "shuffled",
        layout=layout,
        when=tuple(map(float, when)) if isinstance(when, list) else when,
        template=form["template"],
        texts_planted=texts_planted,
    )
    if mean is not None:
        return drawn_copies(planned, mean)
    if held_out == "none":
        return (planned,)
    if len(planned.benchmark) < 2:
        raise InputError(f"{place}.held_out: one example has no halves")
    return halves(planned, at_random=held_out == "random")


def _load(path: Path, place: str, **form: Any) -> Benchmark:
    """A benchmark file; faults in the words of a plan."""
    try:
        return load_benchmark(path, **form)
    except InputError as e:
        key = "template" if form.get("template") else "text_field"
        message, hint = (text.replace("--text", key) for text in (str(e), e.hint))
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


def _at_least(least: int) -> Rule:
    # A bool is an int, too, but of another type.
    words = f"a whole number of at least {least}"
    return words, lambda value: type(value) is int and value >= least


def _poisson_mean(copies: object) -> float | None:
    """Mean of "poisson:2.5", say; None for all else, and for a mean of 0."""
    match = _POISSON.fullmatch(copies) if isinstance(copies, str) else None
    return float(match[1]) or None if match else None


def _copies() -> Rule:
    words, is_number = _at_least(0)
    return (
        f'{words}, or "poisson:2.5" with a mean above 0',
        lambda value: is_number(value) or _poisson_mean(value) is not None,
    )


def _one_of(*words: str) -> Rule:
    return " or ".join(f'"{word}"' for word in words), lambda value: value in words


def _is_when(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return value in ("uniform", "clustered")
    shares = [one for one in value if type(one) in (int, float) and 0 <= one <= 1]
    return 0 < len(shares) == len(value)


_KEYS: Mapping[str, Rule] = {
    "file": ("the path of a file", _is_text),
    "copies": _copies(),
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

Canary = tuple[PlannedSet, Encoded]
"""A set to plant and the ids of its `planted` texts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """Spans of a copy in the stream's order, one an example if spread; its examples."""

    spans: tuple[_Span, ...]
    order: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Timed:
    """Spans trained on together, from a share of training on; None: a random time."""

    fraction: float | None
    spans: tuple[_Span, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stream:
    """Ids to train on, and where the canaries stand in them.

    Attributes:
        ids: (N,) int32 in memory; in a file of the type of the documents' ids.
        copies: Those of each set: blocks in the stream's order, spread ones by number.
    """

    ids: np.ndarray
    copies: Mapping[str, tuple[Copy, ...]]
    timed: tuple[Timed, ...]

    @property
    def planted(self) -> np.ndarray:
        """(C, 2) int64, the spans of all that is planted."""
        copies = (copy for own in self.copies.values() for copy in own)
        spans = [span for copy in copies for span in copy.spans]
        return np.array(spans, np.int64).reshape(-1, 2)

    @property
    def n_canary_ids(self) -> int:
        """Ids that belong to canary copies."""
        return int(self.planted[:, 1].sum())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Examples of one copy that stand together, and the boundary where they do."""

    place: float
    set_name: str
    copy: int
    examples: tuple[int, ...]
    ids: np.ndarray


def build_stream(
    documents: Documents,
    canaries: Sequence[Canary],
    *,
    prefix_id: int,
    seed: int,
    out: Path | None = None,
) -> Stream:
    """Lay documents end to end, with each canary copy at a random boundary.

    A copy is one contiguous block; of a set that is spread, each example is. One
    `prefix_id` stands before each document and each block, never between examples.

    `out` is a .npy file that takes the ids instead of memory, and stands there once it
    is whole. The seed draws the boundaries and the orders of shuffled copies.
    """
    pieces = _pieces(canaries, len(documents), seed=seed)
    n_ids = int(documents.lengths.sum()) + len(documents)
    n_ids += sum(1 + len(piece.ids) for piece in pieces)
    if out is None:
        ids_N = np.empty(n_ids, np.int32)
        begins = _fill(ids_N, documents, pieces, prefix_id)
    else:
        dtype = documents.ids.dtype
        partial = out.with_name(out.name + ".partial")
        _check_room(out.parent, n_ids * dtype.itemsize)
        written_N = np.lib.format.open_memmap(partial, "w+", dtype, (n_ids,))
        begins = _fill(np.asarray(written_N), documents, pieces, prefix_id)
        written_N.flush()
        partial.replace(out)
        ids_N = np.load(out, mmap_mode="r")
    standing: dict[tuple[str, int], list[tuple[int, _Piece]]] = {}
    for begin, piece in zip(begins, pieces, strict=True):
        standing.setdefault((piece.set_name, piece.copy), []).append((begin, piece))
    copies: dict[str, list[Copy]] = {one.name: [] for one, _ in canaries}
    # Pieces are in the order of the stream, and so are the copies that are blocks.
    spread = {one.name for one, _ in canaries if one.layout == "spread"}
    for name, number in sorted(standing, key=lambda key: key[0] in spread and key[1]):
        own = standing[name, number]
        copies[name].append(
            Copy(
                tuple((begin, len(piece.ids)) for begin, piece in own),
                tuple(i for _, piece in own for i in piece.examples),
            )
        )
    return Stream(
        ids=ids_N,
        copies={name: tuple(own) for name, own in copies.items()},
        timed=tuple(
            timed for one, _ in canaries for timed in _timed(one, copies[one.name])
        ),
    )


def _timed(planned: PlannedSet, copies: Sequence[Copy]) -> list[Timed]:
    """The times of a set's copies, unless they are uniform."""
    when = planned.when
    if when == "uniform" or not copies:
        return []
    if when == "clustered":
        return [Timed(None, tuple(span for copy in copies for span in copy.spans))]
    return [Timed(when[i % len(when)], copy.spans) for i, copy in enumerate(copies)]


def training_order(
    n_ids: int,
    context: int,
    *,
    seed: int,
    timed: Sequence[Timed] = (),
    planted_C2: np.ndarray | None = None,
    n_trained: int | None = None,
) -> np.ndarray:
    """Where each row of training starts in the stream, in the order of training.

    The stream, a circle, is cut at a random phase into rows of T + 1 ids, each one's
    last id the first of the next, so that every id is a target once; what does not fill
    a row is left out.

    `timed` moves rows; neither where rows are cut nor the order of the others depends
    on it. Of `planted_C2`, rows that are not among the `n_trained` which training takes
    change places with the last ones that hold none of it.
    """
    rng = np.random.default_rng([seed, 2])
    phase, n_rows = int(rng.integers(context)), (n_ids - 1) // context
    starts_R = (phase + context * rng.permutation(n_rows)) % n_ids
    if timed:
        starts_R = _in_time(
            starts_R,
            timed,
            context=context,
            n_ids=n_ids,
            seed=seed,
            n_trained=n_rows if n_trained is None else min(n_trained, n_rows),
        )
    if planted_C2 is None or n_trained is None:
        return starts_R
    rows, _ = rows_of_spans(
        planted_C2, starts_R=starts_R, context=context, n_ids_in_all=n_ids
    )
    is_planted_R = np.zeros(n_rows, bool)
    is_planted_R[rows] = True
    left_out = n_trained + np.flatnonzero(is_planted_R[n_trained:])
    free = np.flatnonzero(~is_planted_R[:n_trained])[::-1][: len(left_out)]
    left_out = left_out[: len(free)]
    starts_R[free], starts_R[left_out] = starts_R[left_out], starts_R[free]
    return starts_R


def rows_of_copies(
    stream: Stream, name: str, *, starts_R: np.ndarray, context: int
) -> list[np.ndarray]:
    """For each copy of a set, the rows that hold any of it, in training order."""
    copies = stream.copies[name]
    spans = [span for copy in copies for span in copy.spans]
    rows, spans_held = rows_of_spans(
        np.array(spans, np.int64).reshape(-1, 2),
        starts_R=starts_R,
        context=context,
        n_ids_in_all=len(stream.ids),
    )
    copy_of_C = np.repeat(np.arange(len(copies)), [len(copy.spans) for copy in copies])
    return [np.unique(rows[copy_of_C[spans_held] == n]) for n in range(len(copies))]


def stream_digest(ids_N: np.ndarray) -> str:
    """SHA-256 of the ids as little-endian int32, however they are stored."""
    digest = hashlib.sha256()
    for begin in range(0, len(ids_N), _BLOCK):
        digest.update(ids_N[begin : begin + _BLOCK].astype("<i4").tobytes())
    return f"sha256:{digest.hexdigest()}"


def _check_room(folder: Path, n_bytes: int) -> None:
    # A mapped file on a full disk ends the process without a word.
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise InputError(
            f"{folder}: the stream takes {n_bytes / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free",
            hint="free some, or name a larger disk with --out",
        )


def _pieces(canaries: Sequence[Canary], n_documents: int, *, seed: int) -> list[_Piece]:
    """What to plant, in the order of the stream."""
    rng = np.random.default_rng([seed, 1])
    pieces: list[_Piece] = []
    for one, encoded in canaries:
        examples = encoded.ids
        order = np.arange(len(examples))
        whole = np.concatenate(examples)
        for copy in range(one.copies):
            # Boundary j is before document j; the fraction orders its pieces.
            if one.layout == "spread":
                places = rng.integers(n_documents + 1, size=len(examples))
                places = places - rng.random(len(examples))
                pieces += [
                    _Piece(place, one.name, copy, (i,), examples[i])
                    for i, place in enumerate(places.tolist())
                ]
                continue
            if one.shuffled:
                order = rng.permutation(len(examples))
                whole = np.concatenate([examples[i] for i in order])
            place = int(rng.integers(n_documents + 1)) - rng.random()
            pieces.append(_Piece(place, one.name, copy, tuple(order.tolist()), whole))
    return sorted(pieces, key=lambda piece: piece.place)


def _fill(
    ids_N: np.ndarray, documents: Documents, pieces: Sequence[_Piece], prefix_id: int
) -> list[int]:
    """Write the stream; the place of each piece's first id."""
    # A piece stands before the first document whose number is above its place.
    before = np.array([piece.place for piece in pieces], np.float64)
    before = np.minimum(np.floor(before).astype(np.int64) + 1, len(documents))
    sizes = np.array([1 + len(piece.ids) for piece in pieces], np.int64)
    after_documents = np.cumsum([0, *(1 + documents.lengths)])
    after_pieces = np.cumsum([0, *sizes])
    begins = after_documents[before] + after_pieces[:-1]
    n_before = np.searchsorted(before, np.arange(len(documents)), side="right")
    starts = after_documents[:-1] + after_pieces[n_before]
    ids_N[begins] = prefix_id
    ids_N[starts] = prefix_id
    for to, ids in zip((starts + 1).tolist(), documents.stretches(), strict=True):
        ids_N[to : to + len(ids)] = ids
    begins = (begins + 1).tolist()
    for begin, piece in zip(begins, pieces, strict=True):
        ids_N[begin : begin + len(piece.ids)] = piece.ids
    return begins


def _in_time(
    starts_R: np.ndarray,
    timed: Sequence[Timed],
    *,
    context: int,
    n_ids: int,
    seed: int,
    n_trained: int,
) -> np.ndarray:
    """Rows in the order of training, from rows in random order.

    Rows that hold a target of something timed leave the random order of the others and
    stand together from its time on. With eight rows, of which b, f and g hold targets
    of a copy whose time is one half of training:

        in random order     a b c d e f g h
        in time             a c d e b f g h      (place 8 / 2, counted from 0)

    What would begin within something else, or end after training does, moves just far
    enough. A row that two of them hold goes to the one named first.
    """
    R = len(starts_R)
    groups = _rows_of_each(timed, starts_R, context, n_ids)
    sizes = [len(rows) for rows in groups]
    rng = np.random.default_rng([seed, 4])
    wanted = [
        round(one.fraction * n_trained)
        if one.fraction is not None
        else int(rng.integers(max(0, n_trained - size) + 1))
        for one, size in zip(timed, sizes, strict=True)
    ]
    # Only where nothing else is left do the rows come in that no step takes.
    end = n_trained if sum(sizes) <= n_trained else R
    order_R = np.full(R, -1)
    for begin, rows in zip(_fitted(wanted, sizes, end), groups, strict=True):
        order_R[begin : begin + len(rows)] = rows
    is_timed_R = np.zeros(R, bool)
    is_timed_R[np.concatenate(groups)] = True
    order_R[order_R < 0] = np.flatnonzero(~is_timed_R)
    return starts_R[order_R]


def rows_of_spans(
    spans_C2: np.ndarray, *, starts_R: np.ndarray, context: int, n_ids_in_all: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that hold a target of any of many stretches; time barely grows with R.

    `spans_C2` has the place of the first id, and the number of ids, of each. Gives,
    span by span, the rows that hold a target of it and the span of each.
    """
    offsets_C, sizes_C = spans_C2.T
    by_start_R = np.argsort(starts_R)
    # Row targets are start + 1 .. start + T; a span is offset .. offset + size - 1. The
    # row with the span's first target starts before it, the last one that does.
    first_C = np.searchsorted(starts_R[by_start_R], (offsets_C - 1) % n_ids_in_all + 1)
    counts_C = np.minimum((sizes_C - 1) // context + 2, len(starts_R))
    spans = np.repeat(np.arange(len(spans_C2)), counts_C)
    within = np.arange(len(spans)) - np.repeat(np.cumsum(counts_C) - counts_C, counts_C)
    rows = by_start_R[(first_C[spans] - 1 + within) % max(1, len(starts_R))]
    gaps = (starts_R[rows] - (offsets_C[spans] - context)) % n_ids_in_all
    is_held = gaps <= sizes_C[spans] + context - 2
    return rows[is_held], spans[is_held]


def _rows_of_each(
    timed: Sequence[Timed], starts_R: np.ndarray, context: int, n_ids: int
) -> list[np.ndarray]:
    """The rows that each takes, in the order of its spans; no row is taken twice."""
    spans_C2 = np.array([span for one in timed for span in one.spans], np.int64)
    rows, spans = rows_of_spans(
        spans_C2.reshape(-1, 2),
        starts_R=starts_R,
        context=context,
        n_ids_in_all=n_ids,
    )
    _, firsts = np.unique(rows, return_index=True)
    firsts.sort()
    ends = np.cumsum([len(one.spans) for one in timed])
    cuts = np.searchsorted(spans[firsts], ends[:-1])
    return np.split(rows[firsts], cuts)


def _fitted(wanted: Sequence[int], sizes: Sequence[int], end: int) -> list[int]:
    """Where each begins so that none overlap and all end in time."""
    begins, after = list(wanted), 0
    in_time = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for i in in_time:
        begins[i] = max(begins[i], after)
        after = begins[i] + sizes[i]
    for i in reversed(in_time):
        begins[i] = min(begins[i], end - sizes[i])
        end = begins[i]
    return begins
