"""`jaxcontam books`: how much of each book a model was trained on, by known books."""

import dataclasses
from typing import Any

import numpy as np
from tyro.conf import Positional

from jaxcontam.analyses.book_rates import (
    book_warnings,
    judged_books,
    shelve,
    without_copies,
)
from jaxcontam.analyses.finite import finite_scores
from jaxcontam.analyses.known_texts import RunTexts
from jaxcontam.analyses.membership_judging import rows_of
from jaxcontam.analyses.saved import write_files
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.commands.flags import (
    ReportFlags,
    ScoringFlags,
    check_positive,
    flags_of,
    open_for,
)
from jaxcontam.commands.publish import shown
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.book_files import (
    MEMBER,
    NONMEMBER,
    TESTED,
    Book,
    load_books,
    load_known,
)
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.membership.text_scores import LOSS, ZLIB
from jaxcontam.methods.membership.token_scores import MIN_K, MIN_K_PP
from jaxcontam.progress import progress_bar
from jaxcontam.report.books import COMMAND, book_sentences, book_tables
from jaxcontam.report.outcome import print_table
from jaxcontam.results import Report
from jaxcontam.terminal import Terminal

# What a snippet can be read for without a flag that this command does not have.
_READS = {"moments", "lowercase", "neighbours", "gradients"}
_SCORES = (MIN_K.name, LOSS.name, ZLIB.name, MIN_K_PP.name)
# Rows of the printed table, as in table 2 of the paper; the page has all.
_PRINTED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Books(ScoringFlags, ReportFlags):
    """Rate how much of each book a model has seen, by a threshold from known books.

    Examples:
        jaxcontam books MODEL_DIR mine/ --known-members old/ --known-nonmembers new/
        # snippets with labels
        jaxcontam books MODEL_DIR books/ --known snippets.jsonl
    """

    books: Positional[tuple[str, ...]]
    """Books: .txt files, folders of them, or tables with a title and a text."""
    known_members: tuple[str, ...] = ()
    """Books that the model was trained on, given like BOOKS."""
    known_nonmembers: tuple[str, ...] = ()
    """Books that it was not, such as newer ones."""
    known: str | None = None
    """Or one table with a label, such as hf:swj0419/BookMIA:train."""
    snippets: int = 100
    """Snippets of each book, drawn at random places without overlap."""
    words: int = 512
    """Words of a snippet."""
    scores: tuple[str, ...] = _SCORES
    """Membership scores; the first decides, so name it before you look."""
    text_field: str | None = None
    """Field of a table that is the text (default: input, snippet or text)."""
    title_field: str | None = None
    """Field of a table that names the book (default: title, or that of BookMIA)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "snippets", "words")
        score_methods(self.scores)
        if not self.books:
            raise InputError("no books in question", hint="name files after MODEL")
        pair = bool(self.known_members), bool(self.known_nonmembers)
        if self.known is None and not all(pair):
            raise InputError(
                "a threshold needs known books of both kinds",
                hint="give --known-members and --known-nonmembers, or --known",
            )
        if self.known is not None and any(pair):
            raise InputError("--known excludes --known-members and --known-nonmembers")

    def run(self) -> dict[str, Any]:
        """Draw snippets, score them, fit, rate, write and print; the report."""
        watch = Stopwatch()
        books, notes = without_copies(self._load())
        shelf, texts = shelve(
            books, n_snippets=self.snippets, n_words=self.words, seed=self.seed
        )
        methods = score_methods(self.scores)
        primary = methods[0].name
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.methods.membership.plan import score_texts

        opened = open_for(self, self.model)
        if self.scores == _SCORES and not opened.has_moments:
            methods = [method for method in methods if "moments" not in method.reads]
            notes.append(
                f"{MIN_K_PP.name} left out: it reads the distribution over the whole "
                "vocabulary, and the model gives log-probabilities of the texts alone"
            )
        out = self.made_folder(COMMAND, opened, fingerprint(texts))
        model = self.text_model(opened, out)

        def place(n: int) -> str:
            b = int(shelf.book[n])
            number = int((shelf.book[: n + 1] == b).sum())
            return f"{shelf.titles[b]}: snippet {number}: the model's log-probability"

        with finite_scores(place), progress_bar("scoring snippets") as progress:
            table = score_texts(
                texts, methods, model, seed=self.seed, progress=progress
            )
        names, values = table.names, table.values
        found = judged_books(
            shelf, texts, names, values, primary=primary, seed=self.seed
        )
        settings = {method.name: method.setting for method in methods}
        report = watch.report(
            (COMMAND, self.model, *self.books, *flags_of(self)),
            self.seed,
            (
                dataclasses.replace(row, setting=settings[row.method])
                for row in found.results
            ),
            model=opened.info,
            device=opened.device,
            blind=found.blind,
            book_thresholds=found.thresholds,
            books=found.rates,
            book_warnings=(
                *opened.notes(),
                *notes,
                *book_warnings(books, shelf, self.snippets),
            ),
        )
        owners = shelf.book.tolist()
        snippets = RunTexts(
            name=COMMAND,
            texts=tuple(texts),
            roles=tuple(shelf.roles[b] for b in owners),
            clusters=tuple(owners),
            sources=tuple(shelf.titles[b] for b in owners),
        )
        rows = rows_of(
            snippets,
            table,
            n_tokens=table.n_tokens,
            left_out=np.zeros(len(texts), bool),
        )
        return shown(
            lambda: write_files(report, rows, out),
            lambda console: _print(report, console),
            as_json=self.json,
        )

    def _load(self) -> list[Book]:
        def load(sources: tuple[str, ...], role: str) -> list[Book]:
            return load_books(
                sources, role, text_field=self.text_field, title_field=self.title_field
            )

        books = load(self.books, TESTED)
        if self.known is not None:
            return books + load_known(
                self.known, text_field=self.text_field, title_field=self.title_field
            )
        seen, unseen = self.known_members, self.known_nonmembers
        return [*books, *load(seen, MEMBER), *load(unseen, NONMEMBER)]


def score_methods(names: tuple[str, ...]) -> list[ScoreMethod]:
    """Rows of METHODS that read no more than this command gives; names the nearest."""
    rows = {name: row for name, row in SCORES.items() if _READS.issuperset(row.reads)}
    found = []
    for name in dict.fromkeys(names):
        if name not in rows:
            raise unknown_name("score", name, rows)
        found.append(rows[name])
    if not found:
        raise InputError("--scores names no score", hint=f"such as {', '.join(rows)}")
    return found


def _print(report: Report, console: Terminal) -> None:
    rates, scores = book_tables(report)
    print_table(rates, console, most=_PRINTED)
    if len(rates.rows) > _PRINTED:
        console.print(f"... and {len(rates.rows) - _PRINTED} more in the report")
    console.print()
    print_table(scores, console)
    console.print()
    console.say(*book_sentences(report))
