"""What a page is made of: sections of paragraphs, lists, tables and figures.

Text is escaped when it is rendered. It is a string, or a tuple of strings, `Code` and
`Badge`.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxcontam.report.page_words import OF_STUDY, PageWords


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Words to type."""

    kind: ClassVar = "code"
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in its colour."""

    kind: ClassVar = "badge"
    verdict: str


Text = str | tuple[str | Code | Badge, ...]
Cell = str | Badge
"""Content of a cell of a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; `headline` for what a manager reads, `quiet` for small print."""

    kind: ClassVar = "paragraph"
    text: Text
    look: Literal["", "headline", "lead", "quiet"] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    kind: ClassVar = "items"
    lines: Sequence[Text]


@dataclasses.dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar = "heading"
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names its rows.

    Where the screen is narrow each row of more than three columns becomes a block, in
    which every number stands after the name of its column.

    Attributes:
        label: What it holds, for those who cannot see it.
        words: Columns of words beside the first, which are wrapped; others are numbers.
        is_text: All cells are words.
        looks: Of each row: `primary`, `blind` or ""; may be empty.
    """

    kind: ClassVar = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    label: str
    words: Sequence[int] = ()
    is_text: bool = False
    looks: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its caption; figures in a row stand side by side where they fit.

    A wide one has a row of its own, and scrolls where the screen is narrow.
    """

    kind: ClassVar = "figure"
    svg: str
    caption: str = ""
    look: Literal["", "wide"] = ""
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Details:
    """What opens on a click: texts, each after what it is, then other parts."""

    kind: ClassVar = "details"
    summary: str
    texts: Sequence[tuple[str, str]] = ()
    parts: Sequence["Part"] = ()
    is_open: bool = False


Part = Paragraph | Items | Heading | Table | Figure | Details


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Parts under one title, after which a verdict may stand; a folded one opens."""

    parts: Sequence[Part]
    title: str = ""
    verdict: str | None = None
    is_folded: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that one HTML file shows.

    Attributes:
        limits: What its verdict does not show, before what its kind does not.
        command: The line that makes it again.
    """

    title: str
    verdict: str | None = None
    subtitle: str
    sections: Sequence[Section]
    kind: PageWords = OF_STUDY
    methods: Sequence[tuple[str, str, str]] = ()
    limits: Sequence[str] = ()
    command: str
    check: Text
    provenance: Sequence[tuple[str, str]]
