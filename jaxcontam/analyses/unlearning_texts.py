"""What an unlearning run screens: chunks of texts, and questions with their answers."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.book_files import TESTED, load_books
from jaxcontam.data.chunks import consecutive_chunks, count_words, cut_words
from jaxcontam.data.hub_splits import is_hub_split
from jaxcontam.data.labelled import load_labelled
from jaxcontam.data.templates import (
    field_of,
    fill_template,
    typed_newlines,
)
from jaxcontam.errors import InputError
from jaxcontam.results.unlearning import CHUNKS, QUESTIONS
from jaxcontam.terminal import printable

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Identity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnlearningText:
    """One text that is screened.

    Attributes:
        source: The text that it is a part of, or the row of its question.
        text: What both models score.
        prompt: What the unlearned model continues.
        truth: What would follow if it knew the text; "" where nothing is left of it.
    """

    source: str
    text: str
    prompt: str
    truth: str

    @property
    def has_truth(self) -> bool:
        """Whether a sample can be compared with anything."""
        return bool(self.prompt.strip()) and bool(self.truth.strip())


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Screened:
    """All texts of one task.

    Attributes:
        task: `CHUNKS` or `QUESTIONS`.
        name: Name of the file.
        items: In the order of the file.
        n_left_out: Ends of texts that are shorter than a chunk.
        n_empty: Texts without words, which give no item.
    """

    task: str
    name: str
    items: tuple[UnlearningText, ...]
    n_left_out: int = 0
    n_empty: int = 0

    @property
    def texts(self) -> list[str]:
        """What both models score."""
        return [item.text for item in self.items]

    @property
    def fingerprint(self) -> str:
        """Digest of the screened texts in their order."""
        return fingerprint(self.texts)


# No slots: the command joins these fields to its own.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ScreenDesign:
    """What is screened; the fields are flags of `jaxcontam unlearning`."""

    text_field: str | None = None
    """Field of a table that is the text (default: text)."""
    limit: int | None = None
    """Take the first N texts, and the first N questions."""
    words: int = 512
    """Words of a chunk."""
    prompt_words: int = 200
    """Words of a chunk that it is given."""
    question_field: str = "question"
    """Field of a table that is the question, which both models score."""
    answer_field: str = "answer"
    """Its field of the true answer."""
    template: str = r"Question: {question}\nAnswer:"
    """What the model is given of a question."""


def load_chunks(source: str, design: ScreenDesign) -> Screened:
    """Chunks of each text of a file.

    The end of a text that is shorter than a chunk is left out, so that all scores are
    of equally long texts; a text that is shorter as a whole is one chunk.

    Args:
        source: A .txt file (one text), a folder of them, a table, or
            `hf:ORG/NAME[@REVISION][:CONFIG]:SPLIT` (a text a row).
        design: Length of a chunk and of its beginning, which prompts the model.

    Raises:
        InputError: If nothing can be read, or no text has a word.
    """
    n_words = design.words
    texts = _whole_texts(source, design.text_field, design.limit)
    items, n_left_out, n_empty = [], 0, 0
    for name, text in texts:
        chunks = list(consecutive_chunks(text, n_words))
        n_empty += not chunks
        if len(chunks) > 1 and count_words(chunks[-1]) < n_words:
            chunks.pop()
            n_left_out += 1
        for chunk in chunks:
            prompt = cut_words(chunk, design.prompt_words)
            truth = chunk[len(prompt) :].lstrip()
            items.append(
                UnlearningText(source=name, text=chunk, prompt=prompt, truth=truth)
            )
    if not items:
        raise InputError(f"{source}: no words", hint="nothing to screen in these texts")
    return Screened(
        task=CHUNKS,
        name=printable(Path(source).stem) if not is_hub_split(source) else source,
        items=tuple(items),
        n_left_out=n_left_out,
        n_empty=n_empty,
    )


def load_questions(source: str, design: ScreenDesign) -> Screened:
    """Questions and their answers, a pair per row.

    Args:
        source: A table.
        design: Its fields, and what the unlearned model continues.

    Raises:
        InputError: If a row lacks a field, or its answer is neither text nor number.
    """
    template, answer_field = design.template, design.answer_field
    found = load_labelled(
        source,
        text_field=design.question_field,
        limit=design.limit,
        with_labels=False,
        null_text="",
    )
    items = []
    for number, (text, row) in enumerate(zip(found.texts, found.rows, strict=True), 1):
        where = f"{source}: row {number}"
        if not text:
            raise InputError(f"{where}: no question in {design.question_field!r}")
        hint = "--answer-field names the field of the true answer"
        value = field_of(row, answer_field, where, hint=hint)
        prompt = fill_template(typed_newlines(template), {"question": text}, where)
        items.append(
            UnlearningText(
                source=where,
                text=text,
                prompt=prompt,
                truth=_answer(value, answer_field, where),
            )
        )
    return Screened(task=QUESTIONS, name=found.name, items=tuple(items))


def _answer(value: object, field: str, where: str) -> str:
    """The true answer; "" where there is none."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise InputError(
            f"{where}: field {field!r} is neither text nor number "
            f"(but {type(value).__name__})",
            hint="write one answer a row",
        )
    return value if isinstance(value, str) else json.dumps(value)


def _whole_texts(
    source: str, text_field: str | None, limit: int | None
) -> Sequence[tuple[str, str]]:
    """Name and text of each text of a source."""
    path = Path(source)
    if not is_hub_split(source) and (path.is_dir() or path.suffix.lower() == ".txt"):
        books = load_books([path], TESTED)[:limit]
        return [(book.title, "\n".join(book.pieces)) for book in books]
    found = load_labelled(
        source, text_field=text_field, limit=limit, with_labels=False, null_text=""
    )
    return [(f"row {i}", text) for i, text in enumerate(found.texts, 1)]


def check_pair(
    original: "Identity", unlearned: "Identity", tasks: Sequence[Screened]
) -> None:
    """Refuse two models whose scores of a text are of other tokens, or the same.

    Raises:
        InputError: If they are one model, put another token before a text, or cut a
            text into other tokens; names the first such text.
    """
    if original.fingerprint == unlearned.fingerprint:
        raise InputError(
            "ORIGINAL and UNLEARNED are the same model", hint="all ratios would be 1"
        )
    hint = "ratios need two models with one tokenizer"
    if original.prefix_id != unlearned.prefix_id:
        raise InputError(
            "ORIGINAL and UNLEARNED put different tokens before a text "
            f"({original.prefix_id} and {unlearned.prefix_id})",
            hint=hint,
        )
    if original.tokenizer.to_str() == unlearned.tokenizer.to_str():
        return
    for task in tasks:
        pair = (
            one.tokenizer.encode_batch(task.texts, add_special_tokens=False)
            for one in (original, unlearned)
        )
        for item, before, after in zip(task.items, *pair, strict=True):
            if before.ids != after.ids:
                raise InputError(
                    f"{item.source}: ORIGINAL and UNLEARNED read different tokens",
                    hint=hint,
                )


def run_name(
    original: "Identity", unlearned: "Identity", tasks: Sequence[Screened]
) -> str:
    """Folder of a run: another model on either side, or other texts, have another."""
    parts = [task.fingerprint for task in tasks]
    digest = fingerprint([*parts, original.fingerprint, unlearned.fingerprint])
    return f"{original.name}-{unlearned.name}-{digest[7:15]}"
