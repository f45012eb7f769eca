"""Questions with answers: what a model reads, and what counts as right."""

import dataclasses
import string
from collections.abc import Collection, Mapping, Sequence

from jaxcontam.data.answer_options import Item, field_path, option_paths, read_items
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.templates import (
    QuestionFields,
    is_missing,
    template_pieces,
    text_of_field,
    value_at,
)
from jaxcontam.errors import InputError

# The first of a record is what is asked, or what is to be continued.
_ASKED = ("question", "query", "problem", "goal", "stem", "instruction", "input")
_CONTINUED = ("ctx", "sentence", "prompt", "context", "text")
_ANSWERS = ("answer", "answers", "target", "gold", "label", "output", "completion")
_IDS = ("id", "item", "item_id", "question_id", "qid", "uid", "idx", "index", "key")
# A worked solution ends with its result, as in GSM8K.
_RESULT = "####"
_NAMES = "names it; the first row of a .csv or .tsv file names its columns"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """An item that can be scored.

    Attributes:
        item: What it has in common with its rewrites.
        choices: Empty where the answer is to be written.
        answer: Place of the right one, 0-based.
    """

    item: str
    prompt: str
    choices: tuple[str, ...]
    answer: int
    written: tuple[str, ...] = ()
    group: object = None

    @property
    def right(self) -> tuple[str, ...]:
        """Texts that count as right."""
        return (self.choices[self.answer],) if self.choices else self.written


def read_questions(
    benchmark: Benchmark, wanted: QuestionFields, *, grouped: bool = True
) -> list[Question]:
    """Questions of a file: multiple choice if its records have options.

    The benchmark is loaded without a template; `grouped` reads the field of groups.
    """
    template, answer_field = wanted.template, wanted.named("answer")
    options_field = wanted.named("options")
    ids = _ids(benchmark, wanted.named("id"))
    groups: list[object] = [None] * len(benchmark)
    document = wanted.named("document")
    if grouped and document is not None:
        groups = benchmark.groups(document, flag=f"--fields document={document}")
    has_options = any(option_paths(row, options_field) for row in benchmark.rows)
    if has_options or options_field is not None:
        items = read_items(
            benchmark, options_field=options_field, answer_field=answer_field
        )
        found = [
            _choice(benchmark, item, ids[item.number - 1], template) for item in items
        ]
        return [
            dataclasses.replace(one, group=groups[item.number - 1])
            for one, item in zip(found, items, strict=True)
        ]
    questions = []
    for number, row in enumerate(benchmark.rows, 1):
        where = f"{benchmark.name}: example {number}"
        names = _ANSWERS if answer_field is None else (answer_field,)
        name, value = _first(row, names, where, "answer", "--fields answer=NAME")
        prompt = _prompt(template, row, where, {name}, None)
        written = _written(value)
        if not any(written):
            raise InputError(f"{where}: {name!r} holds no answer")
        name, group = ids[number - 1], groups[number - 1]
        questions.append(Question(name, prompt, (), 0, written, group))
    return questions


def item_fields(benchmark: Benchmark, wanted: QuestionFields) -> set[str]:
    """Fields that hold a question, its options, its answer, or what it is called."""
    named = (wanted.named("answer"), wanted.named("id"))
    paths = [
        path
        for row in benchmark.rows
        for path in option_paths(row, wanted.named("options"))
    ]
    return {
        *_ASKED,
        *_ANSWERS,
        *_IDS,
        *filter(None, named),
        *(str(p[0]) for p in paths),
    }


def _choice(
    benchmark: Benchmark, item: Item, name: str, template: str | None
) -> Question:
    where = f"{benchmark.name}: example {item.number}"
    if item.answer is None:
        raise InputError(
            f"{where}: no field names the right option",
            hint=f"--fields answer=NAME {_NAMES}",
        )
    row = benchmark.rows[item.number - 1]
    letters = string.ascii_uppercase[: len(item.options)]
    listed = "\n".join(f"{a}. {b}" for a, b in zip(letters, item.options, strict=False))
    prompt = _prompt(template, row, where, item.hidden, listed)
    is_lettered = template is not None and "{options}" in template
    follow = letters if is_lettered else item.options
    return Question(name, prompt, tuple(f" {one}" for one in follow), item.answer)


def _prompt(
    template: str | None,
    row: Mapping[str, object] | None,
    where: str,
    hidden: Collection[str],
    options: str | None,
) -> str:
    """Text that is read before the answer."""
    if template is None:
        known = (*_ASKED, *_CONTINUED)
        name, value = _first(row, known, where, "question", "--text TEMPLATE")
        return str(value) if name in _CONTINUED else f"Question: {value}\nAnswer:"
    parts = []
    for literal, field in template_pieces(template):
        parts.append(literal)
        if field in hidden:
            raise InputError(
                f"--text {template!r}: {field!r} is the answer",
                hint="leave it out: the model has to find it",
            )
        if field == "options" and options is not None:
            parts.append(options)
        elif field is not None:
            parts.append(text_of_field(field, row, where))
    return "".join(parts)


def _first(
    row: Mapping[str, object] | None,
    names: Sequence[str],
    where: str,
    what: str,
    flag: str,
) -> tuple[str, object]:
    """The first field of these names that a record has."""
    for name in () if row is None else names:
        value = value_at(row, field_path(name, row or {}))
        if not is_missing(value) and value != "":
            return name, value
    has = "plain text" if row is None else f"it has: {', '.join(row)}"
    raise InputError(f"{where}: no {what} ({has})", hint=f"{flag} {_NAMES}")


def _written(value: object) -> tuple[str, ...]:
    """Texts that count as the answer."""
    values = value if isinstance(value, list) else [value]
    texts = (str(one) for one in values if not is_missing(one))
    return tuple(text.rpartition(_RESULT)[2].strip() for text in texts)


def _ids(benchmark: Benchmark, field: str | None) -> list[str]:
    """Names of the records; their numbers where no field tells."""
    names = _IDS if field is None else (field,)
    for name in names:
        if all(not is_missing((row or {}).get(name)) for row in benchmark.rows):
            return [str(row[name]) for row in benchmark.rows if row is not None]
    if field is not None:
        benchmark.groups(field, flag="--fields id=NAME")
    return [str(number) for number in range(1, len(benchmark) + 1)]
