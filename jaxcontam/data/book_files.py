"""Books: whole texts from files, folders and tables, and snippets of each.

A book is a .txt file, or the rows of a table that share a title. One row is a whole
book, from which snippets are drawn; several rows are a book in pieces, as in BookMIA,
and its snippets are those pieces.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import read_text
from jaxcontam.data.chunks import count_words, cut_words, random_snippets
from jaxcontam.data.hub_splits import is_hub_split
from jaxcontam.data.labelled import (
    LABEL_FIELD,
    LabelledTexts,
    has_field,
    labels_of,
    load_labelled,
)
from jaxcontam.errors import InputError
from jaxcontam.terminal import printable

TESTED, MEMBER, NONMEMBER = "text", "member", "nonmember"
"""Role of a book: tested, or known to be a member or a non-member."""

_TITLE_FIELD = "title"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Book:
    """A book as it was given.

    Attributes:
        title: The file's name without its suffix, or the table's title.
        pieces: Its one text, or its texts where it comes in pieces.
        role: `TESTED`, `MEMBER` or `NONMEMBER`.
    """

    title: str
    pieces: tuple[str, ...]
    role: str = TESTED

    @property
    def digest(self) -> str:
        """Digest of its text, whatever its title."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            digest.update(hashlib.sha256(piece.encode()).digest())
        return digest.hexdigest()


def load_books(
    sources: Sequence[str | Path],
    role: str,
    *,
    text_field: str | None = None,
    title_field: str | None = None,
) -> list[Book]:
    """Read books in the order of their sources.

    Args:
        sources: .txt files, folders (every .txt file in them and below, sorted), tables
            (.jsonl, .json, .csv, .tsv, .parquet) with a text and a title, or
            `hf:ORG/NAME[@REVISION][:CONFIG]:SPLIT`.
        role: Role of all of them.
        text_field: Text field of tables; None recognises it as in `load_labelled`.
        title_field: Title field of tables; None takes `title`, or `book_id` and `book`
            of BookMIA.

    Raises:
        InputError: If a source is missing, holds no book or lacks a field.
    """
    books: list[Book] = []
    for source in sources:
        path = Path(source)
        if not is_hub_split(source) and path.is_dir():
            inside = sorted(
                found
                for found in path.rglob("*")
                if found.suffix.lower() == ".txt"
                and not any(p.startswith(".") for p in found.relative_to(path).parts)
            )
            if not inside:
                raise InputError(
                    f"{path}: no .txt file in this folder", hint="one file is one book"
                )
            books += [_text_file(found, role) for found in inside]
        elif not is_hub_split(source) and path.suffix.lower() == ".txt":
            books.append(_text_file(path, role))
        else:
            texts = _read_table(source, text_field, title_field)
            books += _books_of_rows(texts, range(len(texts)), role)
    return books


def load_known(
    source: str | Path, *, text_field: str | None = None, title_field: str | None = None
) -> list[Book]:
    """Books of a table that says which are members, such as BookMIA.

    Rows without a known label are left out.

    Raises:
        InputError: If there is no label, or a book has snippets of both kinds.
    """
    texts = _read_table(source, text_field, title_field)
    if not has_field(texts.rows, LABEL_FIELD):
        raise InputError(
            f"{source}: no field 'label'",
            hint="--known needs 1 for members and 0 for others; else give "
            "--known-members and --known-nonmembers",
        )
    labels = labels_of(texts.rows, LABEL_FIELD, texts.name)
    sides: dict[str, set[str]] = {}
    found = []
    for label, role in ((True, MEMBER), (False, NONMEMBER)):
        rows = [i for i, one in enumerate(labels) if one is label]
        books = _books_of_rows(texts, rows, role)
        for book in books:
            sides.setdefault(book.title, set()).add(role)
        found += books
    if both := sorted(title for title, roles in sides.items() if len(roles) == 2):
        raise InputError(f"{source}: book {both[0]!r} is a member and a non-member")
    return found


def snippets_of(
    book: Book, *, n_snippets: int, n_words: int, seed: int
) -> tuple[str, ...]:
    """Snippets of a book: drawn from its text, or its pieces.

    Args:
        book: The book.
        n_snippets: Most snippets; see `random_snippets` for short books. From more
            pieces than that, a sample is drawn.
        n_words: Words of each; longer pieces are cut.
        seed: Seeds the draw, with the book's digest.
    """
    if len(book.pieces) == 1:
        return random_snippets(
            book.pieces[0], n_snippets=n_snippets, n_words=n_words, seed=seed
        )
    pieces = [cut_words(piece, n_words) for piece in book.pieces if count_words(piece)]
    if len(pieces) > n_snippets:
        rng = np.random.default_rng([seed, int(book.digest[:16], 16)])
        chosen = np.sort(rng.choice(len(pieces), n_snippets, replace=False))
        pieces = [pieces[i] for i in chosen.tolist()]
    return tuple(pieces)


def _text_file(path: Path, role: str) -> Book:
    return Book(title=printable(path.stem), pieces=(read_text(path),), role=role)


def _read_table(
    source: str | Path, text_field: str | None, title_field: str | None
) -> LabelledTexts:
    return load_labelled(
        source,
        text_field=text_field,
        cluster_field=title_field,
        cluster_flag="--title-field",
        with_labels=False,
        null_text="",
    )


def _books_of_rows(
    texts: LabelledTexts, numbers: Sequence[int], role: str
) -> list[Book]:
    """One book a title, in the order in which titles appear."""
    pieces: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for i in numbers:
        row = texts.rows[i]
        if texts.clusters is not None:
            key = texts.clusters[i]
        elif row is not None and isinstance(row.get(_TITLE_FIELD), str):
            key = str(row[_TITLE_FIELD])
        else:
            raise InputError(
                f"{texts.name}: row {i + 1}: no title",
                hint="--title-field names the field; rows with the same title are one "
                "book",
            )
        pieces.setdefault(key, []).append(texts.texts[i])
        name = None if row is None else row.get("book")
        names.setdefault(key, name if isinstance(name, str) else key)
    # Two books of one name keep their own.
    distinct = len(set(names.values())) == len(names)
    return [
        Book(title=names[key] if distinct else key, pieces=tuple(found), role=role)
        for key, found in pieces.items()
    ]
