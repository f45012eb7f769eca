"""Texts of a run: read from files, put on sides, and chosen as prefixes, with scores.

Formats that are recognised by their fields, unless flags name others:

    WikiMIA   input, label; with a column `paraphrase`, --text names it
    BookMIA   snippet, label; the snippets of one book_id (or book) are a cluster
    others    texts as a whole where the caller allows it, as `load_benchmark` reads
              them, else text; a field `label` is often the class of a task there, and
              says who is a member only where --fields member=NAME does

A label of 1 says member. A row without a known label is kept, as unknown. Records that
have none of these fields, and may be no texts as a whole, are refused.

A part of a text keeps the line breaks and spaces inside it, since a model was trained
on those. Nothing here needs a model: what cannot be run is refused before one is open.

Dimension key
    N  texts of a run
"""

import dataclasses
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import (
    check_text,
    content_digest,
    drawn_places,
    fingerprint,
    load_benchmark,
    read_text,
)
from jaxcontam.data.documents import ASKED, LABELLED, compared, rows_of
from jaxcontam.data.templates import (
    check_template,
    field_of,
    fill_template,
    is_missing,
    null_words,
    text_if_any,
    whole_row_words,
)
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.members.design import ALL, AUTO, MembershipDesign, Source
from jaxcontam.members.score import Reading, ScoreMethod
from jaxcontam.members.scores import AT_K, SCORES, min_k_at, sweep_methods

Row = dict[str, object] | None

TEXT, MEMBER, NONMEMBER = "text", "member", "nonmember"
"""Side of a text: in question, or known."""

FEWEST = 10
"""Texts of a side below which no comparison is worth its name."""

WEIGHTS: frozenset[Reading] = frozenset({"moments", "gradients"})
"""Readings of a model whose weights are here."""

# Readings that cost one more pass at most, or that their own flag asked for.
_CHEAP: frozenset[Reading] = frozenset({"moments", "lowercase", "reference", "corpus"})
_PREFIXES: tuple[tuple[Reading, str], ...] = (
    ("nonmember_prefix", NONMEMBER),
    ("member_prefix", MEMBER),
)

N_SNIPPETS, SNIPPET_WORDS = 100, 512
"""Snippets of each file of a folder and their words (Shi et al. 2023, section 5)."""

LABEL_FIELD = "label"
"""Field of a label in WikiMIA and BookMIA."""

PARAPHRASE = "paraphrase"
"""Field of a text in other words, beside that of the text."""

_LABELLED_FIELDS = ("input", "snippet")
_TEXT_FIELDS = (*_LABELLED_FIELDS, "text")
_CLUSTER_FIELDS = ("book_id", "book")
_MEMBER = {"1", "1.0", "true", "member", "members", "seen"}
_NONMEMBER = {"0", "0.0", "false", "nonmember", "nonmembers", "unseen"}
_NON = ("non-", "non_", "non ")
_WORD = re.compile(r"\S+")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunTexts:
    """N texts, those in question first; `clusters` are their documents, or None."""

    name: str
    texts: tuple[str, ...]
    roles: tuple[str, ...]
    clusters: tuple[str, ...] | None
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the texts and their roles, in their order."""
        return fingerprint(
            [f"{r} {t}" for r, t in zip(self.roles, self.texts, strict=True)]
        )

    def with_role(self, role: str) -> np.ndarray:
        """(N,) bool: the texts of a role."""
        return np.array([one == role for one in self.roles])

    def texts_of(self, chosen_N: np.ndarray) -> list[str]:
        """Some of the texts."""
        return rows_of(self.texts, chosen_N)

    def clusters_of(self, chosen_N: np.ndarray) -> list[str] | None:
        """Documents of some of the texts; None where none are known."""
        return rows_of(self.clusters, chosen_N)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChosenScores:
    """Scores of a run, those `named` one by one, and indices of each prefix's texts."""

    methods: tuple[ScoreMethod, ...]
    primary: str
    shots: Mapping[Reading, np.ndarray]
    named: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> list[int]:
        """Indices of all texts that stand in a prefix."""
        return [int(i) for some in self.shots.values() for i in some]

    def without(self, reading: Reading, note: str) -> "ChosenScores":
        """These scores without those of a prefix."""
        return dataclasses.replace(
            self,
            methods=tuple(m for m in self.methods if reading not in m.reads),
            shots={key: some for key, some in self.shots.items() if key != reading},
            notes=(*self.notes, note),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabelledTexts:
    """Texts of one source in its order, of N rows that have one.

    Attributes:
        labels: (N,) True for a member, None where a row has no label; or None if the
            source has no labels at all.
        clusters: (N,) name of the document that each text comes from; or None if each
            text is its own.
        rows: (N,) the parsed record of each text; None for plain lines.
        text_field: Field of the texts; None for plain lines and for a template.
        n_short: Texts with fewer words than `length`, kept as they are.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[bool | None, ...] | None = None
    clusters: tuple[str, ...] | None = None
    rows: tuple[Row, ...]
    text_field: str | None = None
    whole_rows: bool = False
    n_short: int = 0
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def drawn(self, n: int | None) -> "LabelledTexts":
        """At most n of the texts; see `drawn_places`."""
        places = drawn_places(self.texts, n)
        if len(places) == len(self):
            return self
        left_out = f"{len(self) - len(places)} of {len(self)} texts left out at random"
        return dataclasses.replace(
            self,
            texts=tuple(self.texts[i] for i in places),
            labels=self.labels and tuple(self.labels[i] for i in places),
            clusters=self.clusters and tuple(self.clusters[i] for i in places),
            rows=tuple(self.rows[i] for i in places),
            left_out=(*self.left_out, left_out),
        )


def read_texts(asked: MembershipDesign) -> RunTexts:
    """Read texts with labels, or up to three sides, as the flags say."""

    def read(source: Source, *, with_labels: bool = False) -> LabelledTexts:
        if not isinstance(source, str | Path):
            found = tuple(source)
            rows = (None,) * len(found)
            given = LabelledTexts(name="texts", texts=found, rows=rows)
            return given.drawn(asked.sample)
        if (folder := Path(source)).is_dir():
            n, length = asked.sample or N_SNIPPETS, asked.length or SNIPPET_WORDS
            return load_snippets(folder, n_snippets=n, n_words=length, seed=asked.seed)
        return load_labelled(
            source,
            template=asked.template,
            text_field=asked.text_field,
            label_field=asked.named("member") if with_labels else None,
            cluster_field=asked.named("document"),
            length=asked.length,
            with_labels=with_labels,
            allow_whole_rows=True,
            no_header=asked.no_header,
        ).drawn(asked.sample)

    if asked.nonmembers is None:
        assert asked.texts is not None
        one = read(asked.texts, with_labels=True)
        if one.labels is not None:
            return _labelled(one, asked.length)
        return _joined([(one, TEXT)], asked.length)
    sources = asked.texts, asked.members, asked.nonmembers
    sides = zip(sources, (TEXT, MEMBER, NONMEMBER), strict=True)
    parts = [(read(source), role) for source, role in sides if source is not None]
    return _joined(parts, asked.length)


def _labelled(texts: LabelledTexts, length: int | None) -> RunTexts:
    assert texts.labels is not None
    sides = {label for label in texts.labels if label is not None}
    if len(sides) == 1:
        (only,) = sides
        raise InputError(
            f"{texts.name}: every label says {MEMBER if only else NONMEMBER}",
            hint="give texts of both sides; if there are no labels, give known "
            "non-members with --nonmembers",
        )
    role = {True: MEMBER, False: NONMEMBER, None: TEXT}
    warnings = _how_read(texts, length)
    if n_unknown := texts.labels.count(None):
        warnings.append(
            f"{texts.name}: {n_unknown} of {len(texts)} texts have no label and are "
            "left out of the comparison"
        )
    return RunTexts(
        name=texts.name,
        texts=texts.texts,
        roles=tuple(role[label] for label in texts.labels),
        clusters=texts.clusters,
        sources=(texts.name,) * len(texts.texts),
        warnings=tuple(warnings),
    )


def _joined(parts: Sequence[tuple[LabelledTexts, str]], length: int | None) -> RunTexts:
    fields = {
        f"the whole row ({_names(p)})" if p.whole_rows else repr(p.text_field): p.name
        for p, _ in parts
        if p.whole_rows or p.text_field is not None
    }
    if len(fields) > 1:
        said = " and ".join(f"{field} in {name}" for field, name in fields.items())
        raise InputError(
            f"the text is {said}: two fields may hold two kinds of text",
            hint="name one that both files have with --text, or rename one",
        )
    warnings = [words for part, _ in parts for words in _how_read(part, length)]
    if len(parts) == 1 and has_field(parts[0][0].rows, LABEL_FIELD):
        warnings.append(
            f"the field '{LABEL_FIELD}' of {parts[0][0].name} is not read: "
            f"--fields member={LABEL_FIELD} takes it for members (1) and non-members "
            "(0)"
        )
    clusters: tuple[str, ...] | None = None
    if any(part.clusters is not None for part, _ in parts):
        # A document of one file is no document of another.
        counts = Counter(name for part, _ in parts for name in set(part.clusters or ()))
        if n := sum(count > 1 for count in counts.values()):
            warnings.append(
                f"{n} names of documents occur in more than one file, and each is "
                "counted as one document; if texts of one document are in two files, "
                "no p-value holds: leave out document= if each text was assigned at "
                "random"
            )
        is_told = n > 0 or any(part.clusters is None for part, _ in parts)
        clusters = tuple(
            (f"{number}/" if is_told else "") + str(i if names is None else names[i])
            for number, (part, _) in enumerate(parts)
            for names in [part.clusters]
            for i in range(len(part.texts))
        )
    return RunTexts(
        name=parts[0][0].name,
        texts=tuple(text for part, _ in parts for text in part.texts),
        roles=tuple(role for part, role in parts for _ in part.texts),
        clusters=clusters,
        sources=tuple(part.name for part, _ in parts for _ in part.texts),
        warnings=tuple(warnings),
    )


def _how_read(texts: LabelledTexts, length: int | None) -> list[str]:
    found = [f"{texts.name}: {words}" for words in texts.left_out]
    if texts.whole_rows:
        found += [f"{texts.name}: {words}" for words in whole_row_words(texts.rows)]
    if length is not None and texts.n_short:
        found.append(
            f"{texts.name}: {texts.n_short} of {len(texts)} texts have fewer than "
            f"{length} words and are scored whole"
        )
    return found


def _names(texts: LabelledTexts) -> str:
    return ", ".join(next(row for row in texts.rows if row is not None))


def load_labelled(
    source: str | Path,
    *,
    text_field: str | None = None,
    label_field: str | None = None,
    cluster_field: str | None = None,
    template: str | None = None,
    length: int | None = None,
    with_labels: bool = True,
    allow_whole_rows: bool = False,
    no_header: bool = False,
) -> LabelledTexts:
    """Read texts and their labels from what `load_benchmark` reads, tasks excepted.

    A field that is None is recognised as above. `with_labels=False` ignores a field
    `label`: the file says what its texts are. Of a text at most `length` words count,
    from its start. `allow_whole_rows` takes records of none of these formats as they
    stand, with a field `text` or without, unless one of their fields is the label.
    """
    check_template(template, text_field)
    if length is not None and length < 1:
        raise InputError(f"--length must be at least 1, got {length}")
    file = load_benchmark(source, no_header=no_header)
    name, rows = file.name, file.rows
    whole_rows = False
    if template is None and text_field is None:
        is_plain = all(row is None for row in rows)
        # A label in its own text would tell the sides apart.
        may = allow_whole_rows and label_field is None
        text_field = _recognised(_LABELLED_FIELDS if may else _TEXT_FIELDS, rows)
        whole_rows = may and text_field is None and not is_plain
        if not (whole_rows or is_plain):
            _check_text_field(text_field, rows, name)
    # Neither a template nor other words change whose rows they are.
    is_own = template is None and text_field != PARAPHRASE
    known = text_field if is_own else _recognised(_TEXT_FIELDS, rows)
    if not with_labels:
        label_field = None
    elif label_field is None and known in _LABELLED_FIELDS:
        label_field = LABEL_FIELD if has_field(rows, LABEL_FIELD) else None
    if cluster_field is None and known == "snippet":
        cluster_field = _recognised(_CLUSTER_FIELDS, rows)
    labels = None if label_field is None else labels_of(rows, label_field, name)
    texts, kept, clusters = [], [], []
    for i, row in enumerate(rows):
        where = f"{name}: row {i + 1}"
        if template is not None:
            text = fill_template(template, row, where)
        elif text_field is not None:
            text = text_if_any(text_field, row, where)
            if text is None:
                continue
        else:
            text = file.texts[i]
        check_text(text, where)
        texts.append(text)
        kept.append(i)
        if cluster_field is not None:
            cluster = _value(cluster_field, row, where, "--fields document=NAME")
            if is_missing(cluster):
                raise InputError(
                    f"{where}: field {cluster_field!r} is null",
                    hint="--fields document=NAME must name a field of every row",
                )
            clusters.append(str(cluster))
    left_out = file.left_out + null_words(len(rows) - len(kept), text_field)
    if not texts:
        raise InputError(f"{source}: no texts ({left_out[-1]})")
    n_short = 0
    if length is not None:
        n_short = sum(count_words(text) < length for text in texts)
        texts = [cut_words(text, length) for text in texts]
    return LabelledTexts(
        name=name,
        texts=tuple(texts),
        labels=labels and tuple(labels[i] for i in kept),
        clusters=None if cluster_field is None else tuple(clusters),
        rows=tuple(rows[i] for i in kept),
        text_field=text_field,
        whole_rows=whole_rows,
        n_short=n_short,
        left_out=left_out,
    )


def labels_of(rows: Sequence[Row], field: str, name: str) -> tuple[bool | None, ...]:
    """(N,) True for a member, None where a row says nothing or lacks the field."""
    if not has_field(rows, field):
        _value(field, rows[0], f"{name}: row 1", "--fields member=NAME")
    return tuple(
        parse_label((row or {}).get(field), f"{name}: row {number}")
        for number, row in enumerate(rows, 1)
    )


def parse_label(value: object, where: str) -> bool | None:
    """True for a member, False for a non-member, None where nothing is said.

    A label is 0 or 1, true or false, or a word such as "member" or "non-member"; null,
    "" and NaN say nothing.
    """
    if is_missing(value) or value == "":
        return None
    if isinstance(value, bool | int | float | str):
        word = str(value).strip().lower()
        word = f"non{word[4:]}" if word.startswith(_NON) else word
        if word in _MEMBER:
            return True
        if word in _NONMEMBER:
            return False
    raise InputError(
        f"{where}: label {value!r} is neither member nor non-member",
        hint="labels are 1 or 0, true or false, member or nonmember; "
        "--fields member=NAME names their field",
    )


def has_field(rows: Sequence[Row], field: str) -> bool:
    """True if any record has a field."""
    return any(row is not None and field in row for row in rows)


def _check_text_field(found: str | None, rows: Sequence[Row], name: str) -> None:
    if found is None:
        record = next(row for row in rows if row is not None)
        raise InputError(
            f"{name}: which field is the text? (it has: {', '.join(record)})",
            hint="name it with --text",
        )
    for number, row in enumerate(rows, 1):
        _value(found, row, f"{name}: row {number}", "--text")


def _recognised(names: Sequence[str], rows: Sequence[Row]) -> str | None:
    """The first name that all records have, or else that some have."""
    some = [name for name in names if has_field(rows, name)]
    shared = (name for name in some if all(name in (row or ()) for row in rows))
    return next(shared, None) or next(iter(some), None)


def _value(field: str, row: Row, where: str, flag: str) -> object:
    return field_of(row, field, where, hint=f"{flag} must name a field of every row")


def load_snippets(
    folder: Path,
    *,
    n_snippets: int = N_SNIPPETS,
    n_words: int = SNIPPET_WORDS,
    seed: int = 0,
) -> LabelledTexts:
    """Random snippets of each .txt file of a folder and below; a file is a document.

    Hidden files and folders are passed over. For the places see `random_snippets`.
    """
    files = {
        path.relative_to(folder).with_suffix(""): path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() == ".txt" and path.is_file()
    }
    snippets = {
        name.as_posix(): random_snippets(
            read_text(path), n_snippets=n_snippets, n_words=n_words, seed=seed
        )
        for name, path in files.items()
        if not any(part.startswith(".") for part in name.parts)
    }
    texts = [(name, text) for name, some in snippets.items() for text in some]
    if not texts:
        raise InputError(
            f"{folder}: no .txt file with words in this folder",
            hint="each file is a document, which is cut to snippets",
        )
    counts = [len(some) for some in snippets.values()]
    notes = {
        "without words": counts.count(0),
        f"too short for {n_snippets} snippets": sum(0 < n < n_snippets for n in counts),
    }
    return LabelledTexts(
        name=folder.resolve().name,
        texts=tuple(text for _, text in texts),
        clusters=tuple(name for name, _ in texts),
        rows=(None,) * len(texts),
        n_short=sum(count_words(text) < n_words for _, text in texts),
        left_out=tuple(
            f"{n} of {len(counts)} files {words}" for words, n in notes.items() if n
        ),
    )


def random_snippets(
    text: str, *, n_snippets: int, n_words: int, seed: int
) -> tuple[str, ...]:
    """Snippets of a text at random places, in its order, none sharing a word.

    W words hold at most floor(W / n_words) snippets: a text too short for `n_snippets`
    gives that many, one with fewer than `n_words` words gives itself, whole, and one
    without words gives none. Every set of places is equally likely. The text's
    digest seeds them too: they depend neither on its name nor on the books beside it.
    """
    if n_snippets < 1 or n_words < 1:
        raise ValueError(
            f"n_snippets and n_words must be at least 1, got {n_snippets} and {n_words}"
        )
    spans = [word.span() for word in _WORD.finditer(text)]
    if not spans:
        return ()
    if len(spans) < n_words:
        return (text[spans[0][0] : spans[-1][1]],)
    n_fit = min(n_snippets, len(spans) // n_words)
    # Places without overlap are places among the words that no snippet holds: one slot
    # for each such word and each snippet, and a random choice of the snippets' slots.
    n_slots = len(spans) - n_fit * (n_words - 1)
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
    slots = np.sort(rng.choice(n_slots, n_fit, replace=False))
    starts = slots + np.arange(n_fit) * (n_words - 1)
    return tuple(
        text[spans[start][0] : spans[start + n_words - 1][1]]
        for start in starts.tolist()
    )


def cut_words(text: str, n_words: int) -> str:
    """First words of a text, or the whole text if it has no more."""
    if n_words < 1:
        raise ValueError(f"n_words must be at least 1, got {n_words}")
    for number, word in enumerate(_WORD.finditer(text), 1):
        if number == n_words:
            return text[: word.end()]
    return text


def count_words(text: str) -> int:
    """Count runs of characters without white space."""
    return len(text.split())


def check_sides(run: RunTexts, left_out_N: np.ndarray | None = None) -> None:
    """Refuse a side of which too little is left, before anything slow."""
    if left_out_N is None:
        left_out_N = np.zeros(len(run.texts), bool)
    others_N = run.with_role(NONMEMBER)
    others = set(run.clusters_of(~others_N) or ())
    known = dict.fromkeys(run.clusters_of(others_N) or ())
    if split := [document for document in known if document in others]:
        raise InputError(
            f"{run.name}: {len(split)} documents hold both non-members and other "
            f"texts, such as {split[0]!r}",
            hint="documents are compared as a whole; leave out document= if labels "
            "were assigned to texts at random",
        )
    for role, sides in ((MEMBER, LABELLED), (TEXT, ASKED)):
        first_N = run.with_role(role)
        if not first_N.any() or not others_N.any():
            continue
        kept_N = ~left_out_N & (first_N | others_N)
        found = compared(
            run.texts_of(kept_N), first_N[kept_N], run.clusters_of(kept_N), sides
        )
        kept_N[kept_N] = found.kept
        for known, side_N in ((MEMBER, first_N), (NONMEMBER, others_N)):
            documents = run.clusters_of(kept_N & side_N)
            n = int((kept_N & side_N).sum())
            n = n if documents is None else len(set(documents))
            if n >= 2 or (known, role) == (MEMBER, TEXT):
                continue
            unit = "text" if documents is None else "document"
            shots = (
                (" in addition to those of a prefix")
                if (side_N & left_out_N).any()
                else ""
            )
            more = ", or leave out recall and con_recall" if shots else ""
            raise InputError(
                f"{run.name}: {n} {unit}{'' if n == 1 else 's'} of {known}s{shots} can "
                "be compared (needs at least 2)",
                hint="; ".join([*found.warnings, f"give more different texts{more}"]),
            )


def choose(
    asked: MembershipDesign,
    run: RunTexts,
    available: Collection[Reading],
    *,
    rereads: bool = True,
    sweep_k: bool = False,
    n_shots: int = 5,
) -> ChosenScores:
    """Choose scores, the one that decides, and the texts of prefixes.

    `available` is what the model can be read for; flags name other readings. One that
    `rereads` nothing knows the texts alone.
    """
    names = asked.score_names
    has_company = draw_company(run, np.zeros(len(run.texts), bool), seed=asked.seed)
    had: dict[Reading, object] = {
        "reference": asked.reference is not None,
        "corpus": asked.corpus,
        "own_file": has_company,
        **{reading: run.with_role(role).any() for reading, role in _PREFIXES},
    }
    readings: set[Reading] = {"lowercase", "neighbours", *available}
    readings |= {reading for reading, is_had in had.items() if is_had}
    if not rereads:
        readings &= {"reference"}
    methods = _methods(names, readings, asked.k / 100, sweep=sweep_k)
    primary = _primary(names[0], methods, asked.k / 100)
    if sweep_k and not (run.with_role(MEMBER).any() and run.with_role(NONMEMBER).any()):
        raise InputError(
            "sweep_k needs members and non-members",
            hint="give labels, or --members and --nonmembers",
        )
    shots: dict[Reading, np.ndarray] = {
        reading: draw_shots(run, role, n_shots, seed=asked.seed)
        for reading, role in _PREFIXES
        if any(reading in method.reads for method in methods)
    }
    notes = ()
    if "moments" not in available and {AUTO, ALL} & set(names):
        lost = [row.name for row in SCORES.values() if "moments" in row.reads]
        notes = (
            f"{', '.join(lost)} left out: they read the distribution over the whole "
            "vocabulary, and only log-probabilities of the texts are known",
        )
    return ChosenScores(
        methods=tuple(methods),
        primary=primary,
        shots=shots,
        named=frozenset(names),
        notes=notes,
    )


def _methods(
    names: Sequence[str], readings: Collection[Reading], fraction: float, *, sweep: bool
) -> list[ScoreMethod]:
    if not names:
        raise InputError(
            "--scores names no score",
            hint=f"choices: {', '.join([*SCORES, AUTO, ALL])}",
        )
    wanted: set[str] = set()
    for name in names:
        if name in (AUTO, ALL):
            usable = set(readings) & _CHEAP if name == AUTO else set(readings)
            wanted |= {key for key, row in SCORES.items() if set(row.reads) <= usable}
        elif name in SCORES:
            wanted.add(name)
        else:
            raise unknown_name("score", name, [*SCORES, AUTO, ALL])
    chosen = [
        AT_K[name](fraction) if name in AT_K else row
        for name, row in SCORES.items()
        if name in wanted
    ]
    have = {method.name for method in chosen}
    swept = [method for method in sweep_methods() if method.name not in have]
    return [*chosen, *swept] if sweep else chosen


def _primary(first: str, methods: Sequence[ScoreMethod], fraction: float) -> str:
    """The score that is named first; min_k where none is, if it is there."""
    names = [method.name for method in methods]
    if first in (AUTO, ALL):
        min_k = min_k_at(fraction).name
        return min_k if min_k in names else names[0]
    return AT_K[first](fraction).name if first in AT_K else first


def draw_shots(run: RunTexts, role: str, n_shots: int, *, seed: int) -> np.ndarray:
    """Indices of the texts that stand before all others as a prefix.

    They are drawn from their side at random, whatever the order of the file.
    """
    # Text -> its first place.
    distinct: dict[str, int] = {}
    for i in np.flatnonzero(run.with_role(role)).tolist():
        if run.texts[i].strip():
            distinct.setdefault(run.texts[i], i)
    if len(distinct) < n_shots + FEWEST:
        raise InputError(
            f"{run.name}: {len(distinct)} distinct {role}s, too few to use {n_shots} "
            "of them as a prefix",
            hint=f"give more {role}s, or leave out recall and con_recall",
        )
    digest = content_digest([*distinct])
    words = np.frombuffer(bytes.fromhex(digest.removeprefix("sha256:")), np.uint32)
    drawn = np.random.default_rng([seed, *words.tolist()])
    # Sorted by text, so that the draw does not depend on the order of the file.
    by_text = np.array([i for _, i in sorted(distinct.items())])
    return by_text[drawn.permutation(len(by_text))[:n_shots]]


def draw_company(
    run: RunTexts, left_out_N: np.ndarray, *, seed: int
) -> tuple[str, ...]:
    """For each text that takes part another one of its side, to stand before it.

    The distinct texts of a side in a random ring, so that each stands before one other
    and chance of a single text counts once. None where a side has a single text.
    """
    rng = np.random.default_rng([seed, 73])
    before: dict[tuple[str, str], str] = {}
    for role in dict.fromkeys(run.roles):
        texts = set(run.texts_of(run.with_role(role) & ~left_out_N))
        ring = rng.permutation(sorted(text for text in texts if text.strip())).tolist()
        if len(ring) < 2:
            return ()
        # A text without words has no score that counts.
        before |= {(role, text): ring[0] for text in texts}
        before |= {(role, ring[i - 1]): text for i, text in enumerate(ring)}
    scored = itertools.compress(zip(run.roles, run.texts, strict=True), ~left_out_N)
    return tuple(before[key] for key in scored)


def left_out(run: RunTexts, shots: Sequence[int]) -> np.ndarray:
    """(N,) bool: texts that a prefix holds, with their copies and their documents.

    They are left out of every comparison: a text is known to its own prefix.
    """
    shown, clusters = {run.texts[i] for i in shots}, run.clusters
    out_N = np.array([text in shown for text in run.texts])
    if clusters is not None:
        shown = {clusters[i] for i in shots}
        out_N |= np.array([cluster in shown for cluster in clusters])
    return out_N
