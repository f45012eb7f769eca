"""Texts with labels: members of the training data or not, from a file or the hub.

Formats that are recognised by their fields, unless flags name others:

    WikiMIA   input, label
    BookMIA   snippet, label; the snippets of one book_id (or book) are a cluster
    others    texts as a whole where the caller allows it, as `load_benchmark` reads
              them, else text; a field `label` is often the class of a task there, and
              says who is a member only where --label-field names it

A label of 1 says member. A row without a known label is kept, as unknown. Records that
have none of these fields, and may be no texts as a whole, are refused.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.benchmark import (
    check_text,
    drawn_places,
    fingerprint,
    load_benchmark,
    read_text,
)
from jaxcontam.data.templates import (
    check_template,
    field_of,
    fill_template,
    is_missing,
    null_words,
    text_if_any,
)
from jaxcontam.errors import InputError
from jaxcontam.members.chunks import count_words, cut_words, random_snippets

Row = dict[str, object] | None

N_SNIPPETS, SNIPPET_WORDS = 100, 512
"""Snippets of each file of a folder and their words (Shi et al. 2023, section 5)."""

LABEL_FIELD = "label"
"""Field of a label in WikiMIA and BookMIA."""

_LABELLED_FIELDS = ("input", "snippet")
_TEXT_FIELDS = (*_LABELLED_FIELDS, "text")
_CLUSTER_FIELDS = ("book_id", "book")
_MEMBER = {"1", "1.0", "true", "member", "members", "seen"}
_NONMEMBER = {"0", "0.0", "false", "nonmember", "nonmembers", "unseen"}
_NON = ("non-", "non_", "non ")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabelledTexts:
    """Texts of one source in its order, of N rows that have one.

    Attributes:
        texts: (N,) texts, truncated to `length` words if it is given.
        labels: (N,) True for a member, None where a row has no label; or None if the
            source has no labels at all.
        clusters: (N,) name of the document that each text comes from; or None if each
            text is its own.
        rows: (N,) the parsed record of each text; None for plain lines.
        text_field: Field of the texts; None for plain lines and for a template.
        whole_rows: Whether the texts are whole records, as `load_benchmark` has them.
        n_short: Texts with fewer words than `length`, kept as they are.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[bool | None, ...] | None
    clusters: tuple[str, ...] | None
    rows: tuple[Row, ...]
    text_field: str | None = None
    whole_rows: bool = False
    n_short: int = 0
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def fingerprint(self) -> str:
        """Digest of the texts in their order."""
        return fingerprint(self.texts)

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
    # A template does not change whose rows they are.
    known = text_field if template is None else _recognised(_TEXT_FIELDS, rows)
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
            cluster = _value(cluster_field, row, where, "--document-field")
            if is_missing(cluster):
                raise InputError(
                    f"{where}: field {cluster_field!r} is null",
                    hint="--document-field must name a field of every row",
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
        labels=None,
        clusters=tuple(name for name, _ in texts),
        rows=(None,) * len(texts),
        n_short=sum(count_words(text) < n_words for _, text in texts),
        left_out=tuple(
            f"{n} of {len(counts)} files {words}" for words, n in notes.items() if n
        ),
    )


def has_field(rows: Sequence[Row], field: str) -> bool:
    """True if any record has a field."""
    return any(row is not None and field in row for row in rows)


def labels_of(rows: Sequence[Row], field: str, name: str) -> tuple[bool | None, ...]:
    """(N,) True for a member, None where a row says nothing or lacks the field."""
    if not has_field(rows, field):
        _value(field, rows[0], f"{name}: row 1", "--label-field")
    return tuple(
        parse_label(None if row is None else row.get(field), f"{name}: row {number}")
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
        "--label-field names their field",
    )


def _check_text_field(found: str | None, rows: Sequence[Row], name: str) -> None:
    """Refuse records of which none, or some only, have a known field of the text."""
    if found is None:
        record = next(row for row in rows if row is not None)
        raise InputError(
            f"{name}: which field is the text? (it has: {', '.join(record)})",
            hint="name it with --text-field",
        )
    for number, row in enumerate(rows, 1):
        _value(found, row, f"{name}: row {number}", "--text-field")


def _recognised(names: Sequence[str], rows: Sequence[Row]) -> str | None:
    """The first name that all records have, or else that some have."""
    shared = (
        name for name in names if all(row is not None and name in row for row in rows)
    )
    some = (name for name in names if has_field(rows, name))
    return next(shared, None) or next(some, None)


def _value(field: str, row: Row, where: str, flag: str) -> object:
    return field_of(row, field, where, hint=f"{flag} must name a field of every row")
