"""Fields of a benchmark's records that hold the texts and the label."""

import dataclasses
from collections.abc import Iterable, Mapping

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.templates import field_of, text_if_any
from jaxcontam.errors import InputError

_PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("sentence_A", "sentence_B"),
    ("question", "answer"),
    ("instruction", "output"),
    ("prompt", "completion"),
)
_TEXT_NAMES = (
    "text",
    "content",
    "sentence",
    "review",
    "document",
    "article",
    "passage",
    "question",
    "problem",
    "prompt",
)
_SUMMARY_NAMES = ("summary", "highlights", "abstract")
_LABEL_NAME = "label"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Fields of texts and labels.

    `text` is cut in two; None for the text as it was loaded, and for pairs, of which
    the model is shown `first` and should write `second`.
    """

    text: str | None = None
    first: str | None = None
    second: str | None = None
    label: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """Fields of texts and of the label."""
        named = (self.text, self.first, self.second, self.label)
        return tuple(name for name in named if name is not None)

    def texts_of(self, benchmark: Benchmark, index: int) -> tuple[str, ...]:
        """The text of an example, or both texts of a pair; "" where it is null."""
        where = f"{benchmark.name}: example {index + 1}"
        row = benchmark.rows[index]
        if self.first is not None and self.second is not None:
            return (
                text_if_any(self.first, row, where) or "",
                text_if_any(self.second, row, where) or "",
            )
        if self.text is None:
            return (benchmark.texts[index],)
        return (text_if_any(self.text, row, where) or "",)

    def label_of(self, benchmark: Benchmark, index: int) -> object:
        """The label of an example as the record has it; None without a label field."""
        if self.label is None:
            return None
        return field_of(
            benchmark.rows[index],
            self.label,
            f"{benchmark.name}: example {index + 1}",
            hint="--label-field must name a field of every record",
        )


def find_fields(
    benchmark: Benchmark,
    *,
    task: str,
    text_field: str | None = None,
    has_template: bool = False,
    first_field: str | None = None,
    second_field: str | None = None,
    label_field: str | None = None,
) -> Fields:
    """The fields as they were named, or else usual names that the records have.

    `label` is taken as the label's field if nothing is named; `has_template` says that
    a template made the texts.
    """
    if first_field is not None and (text_field is not None or has_template):
        raise InputError(
            "--first-field excludes --text-field and --template",
            hint="a pair has two texts of its own; one text is cut in two",
        )
    row = benchmark.rows[0]
    label = label_field
    if label is None and row is not None and _LABEL_NAME in row:
        label = _LABEL_NAME
    if first_field is not None:
        return Fields(first=first_field, second=second_field, label=label)
    if text_field is not None or has_template:
        if task == "nli":
            raise InputError(
                "--task nli takes pairs, not one text",
                hint="name the fields with --first-field and --second-field",
            )
        return Fields(label=label)
    if task == "nli":
        return _pair(benchmark.name, row, label)
    if row is None:
        return Fields(label=label)
    is_summary = task in ("summary", "one-sentence")
    names = (*_SUMMARY_NAMES, *_TEXT_NAMES) if is_summary else _TEXT_NAMES
    for name in names:
        # The text of one record may be null.
        if name in row and any(
            isinstance((one or {}).get(name), str) for one in benchmark.rows
        ):
            return Fields(text=name, label=label)
    raise _nothing_known(benchmark.name, row, "--text-field F or --template", names)


def _pair(name: str, row: Mapping[str, object] | None, label: str | None) -> Fields:
    for first, second in _PAIR_NAMES:
        if row is not None and first in row and second in row:
            return Fields(first=first, second=second, label=label)
    names = ["/".join(pair) for pair in _PAIR_NAMES]
    raise _nothing_known(name, row, "--first-field A --second-field B", names)


def _nothing_known(
    name: str, row: Mapping[str, object] | None, flags: str, known: Iterable[str]
) -> InputError:
    has = "the examples are plain text" if row is None else f"it has: {', '.join(row)}"
    return InputError(
        f"{name}: no field of a known name ({has})",
        hint=f"name it with {flags}; known names: {', '.join(known)}",
    )
