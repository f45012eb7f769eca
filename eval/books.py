"""Does the contamination rate of a book follow how often a model read it?

Question: long pieces of Python's documentation stand for books; some are trained on 0
to 8 times, and `jaxcontam books` rates them by a threshold from others that are known
to be seen 4 times, or never. Which rates come out?
Command: `python -m eval.books`. Hardware: 2 CPU cores, two minutes, nothing
downloaded. Headline: mean rates of 19 % for books that were never read, 32, 68, 77 and
98 % for 1, 2, 4 and 8 copies (LOG.md).
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from eval.planted import trained
from eval.python_docs import read_python_docs
from eval.study import Grid, StudyFlags, grouped, print_grid, run_study, write_json
from jaxcontam.commands.books import Books
from jaxcontam.report.report_files import make_folder, replace_bytes
from train.prepare import RunOptions
from train.presets import PRESETS
from train.run_folder import MODEL_DIR

_COPIES = (0, 1, 2, 4, 8)
_KNOWN_COPIES = 4
# Fewer known books leave the AUC of a good score with a wide interval.
_KNOWN, _ASKED = 40, 8
_LEAST_WORDS = 500
# Words of a snippet.
_WORDS = 60
_TINY_BOOKS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BooksStudy(StudyFlags):
    """Train on some books 0 to 8 times, then rate them."""

    out: Path = Path("runs/books_study")
    """Folder for the books, the model and the report."""

    def run(self) -> dict[str, Any]:
        """Train, rate, print the table; returns the report of `books`."""
        documents = read_python_docs().documents
        long = [text for text in documents if len(text.split()) >= _LEAST_WORDS]
        drawn = np.random.default_rng([self.seed, 23]).permutation(len(long))
        shuffled = iter([long[i] for i in drawn.tolist()])
        n_known = _TINY_BOOKS if self.tiny else _KNOWN
        n_asked = _TINY_BOOKS // 2 if self.tiny else _ASKED
        groups = {"known_seen": _KNOWN_COPIES, "known_new": 0} | {
            f"copies_{copies}": copies for copies in _COPIES
        }
        books = {
            name: [
                next(shuffled)
                for _ in range(n_known if name.startswith("known") else n_asked)
            ]
            for name in groups
        }
        _write_books(self.out, books)
        rest = [] if self.tiny else list(shuffled)
        planted = [
            text
            for name, copies in groups.items()
            for text in books[name]
            for _ in range(copies)
        ]
        trained(
            [*planted, *rest],
            [],
            PRESETS["pulse" if self.tiny else "tiny"],
            out=self.out / "train",
            seed=self.seed,
            options=RunOptions(),
        )
        asked = [str(self.out / "texts" / f"copies_{copies}") for copies in _COPIES]
        document = Books(
            model=str(self.out / "train" / MODEL_DIR),
            books=tuple(asked),
            known_members=(str(self.out / "texts" / "known_seen"),),
            known_nonmembers=(str(self.out / "texts" / "known_new"),),
            words=_WORDS,
            seed=self.seed,
            out=self.out / "report",
        ).run()
        table = rates_by_copies(document)
        write_json(self.out / "rates.json", table)
        columns = {"copies": "{r[copies]}", "books": "{r[n_books]}"}
        columns["mean rate"] = "{r[mean]:.0%}"
        columns |= {name: f"{{r[{name}]:.0%}}" for name in ("least", "largest")}
        title = "Rates of books by how often the model read them:"
        print_grid(Grid.of(title, table, columns), Console())
        return document


def rates_by_copies(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """Mean, least and largest rate of the books that were read equally often.

    Args:
        document: Report of `books`; titles begin with `copies_N-`.
    """
    rated = [
        row
        for row in document["books"]
        if row["primary"] and row["role"] == "text" and row["rate"] is not None
    ]
    by_name = grouped(rated, lambda row: row["title"].split("-")[0])
    found = {
        copies: [row["rate"] for row in by_name.get(f"copies_{copies}", [])]
        for copies in _COPIES
    }
    return [
        {
            "copies": copies,
            "n_books": len(rates),
            "mean": float(np.mean(rates)),
            "least": min(rates),
            "largest": max(rates),
        }
        for copies, rates in found.items()
        if rates
    ]


def _write_books(out: Path, books: Mapping[str, Sequence[str]]) -> None:
    for name, texts in books.items():
        folder = out / "texts" / name
        make_folder(folder)
        for i, text in enumerate(texts):
            replace_bytes(folder / f"{name}-{i:02}.txt", text.encode())


if __name__ == "__main__":
    sys.exit(run_study("books", BooksStudy, trains=True))
