"""Multiple-choice items: spans of their options, and the right one.

The text of an item is its published source up to the end of the last option, without
the answer: an answer such as `B` names a place, which in another order of the options
is another option, and a model that merely knows the subject would prefer the published
order.
"""

import dataclasses
import json
import string
from collections.abc import Mapping, Sequence

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.option_fields import (
    answer_field_of,
    answer_place,
    field_path,
    first_number,
    hidden_fields,
    option_paths,
    option_text,
)
from jaxcontam.data.spans import Path, csv_spans, json_members, json_span, value_at
from jaxcontam.data.templates import is_missing, template_pieces, text_of_field
from jaxcontam.errors import InputError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A multiple-choice item.

    Attributes:
        number: 1-based, in the file.
        options: In published order.
        parts: Text of the item: literals, and the places of options as integers.
        answer: Place of the right option, 0-based; None if no field tells it.
        hidden: Fields that name a place among the options.
    """

    number: int
    options: tuple[str, ...]
    sources: tuple[str, ...]
    parts: tuple[str | int, ...]
    answer: int | None
    hidden: frozenset[str] = frozenset()

    def text(self, order: Sequence[int]) -> str:
        """The item with option `order[j]` at place j."""
        return "".join(
            part if isinstance(part, str) else self.sources[order[part]]
            for part in self.parts
        )


def read_items(
    benchmark: Benchmark,
    *,
    options_field: str | None = None,
    answer_field: str | None = None,
    template: str | None = None,
) -> list[Item]:
    """Find the options of each record; one without two or more is left out.

    Args:
        benchmark: Loaded without a template: its texts are the published source.
        options_field: Field of the list of options, dots for nesting
            (`question.choices`), or several fields with commas (`A,B,C,D`); by
            default common names are tried.
        answer_field: Field that tells the right option; by default common names.
        template: Text of an item in place of its source, with fields in braces:
            option fields by name, or `{options}` for lines `A. ...`, `B. ...`.
    """
    paths = [option_paths(row, options_field) for row in benchmark.rows]
    if not any(paths):
        row = benchmark.rows[0]
        has = "plain text" if row is None else f"it has: {', '.join(row)}"
        name = "options" if options_field is None else repr(options_field)
        raise InputError(
            f"{benchmark.name}: example 1: no list of {name} ({has})",
            hint="--options-field names the field, or several with commas: A,B,C,D",
        )
    known = [
        (number, row, raw, found)
        for number, (row, raw, found) in enumerate(
            zip(benchmark.rows, benchmark.texts, paths, strict=True), 1
        )
        if row is not None and found
    ]
    answer = answer_field or answer_field_of(
        [(row, found) for _, row, _, found in known]
    )
    if answer_field is not None:
        for number, row, _, _ in known:
            if is_missing(value_at(row, field_path(answer_field, row))):
                raise InputError(
                    f"{benchmark.name}: example {number}: no field {answer_field!r} "
                    f"(it has: {', '.join(row)})",
                    hint="--answer-field must name a field of every record",
                )
    hidden = hidden_fields([(row, found) for _, row, _, found in known], answer)
    first = first_number([(row, found) for _, row, _, found in known], answer)
    items = []
    for number, row, raw, found in known:
        values = [value_at(row, path) for path in found]
        if template is None:
            sources, parts = _source_parts(raw, row, found, hidden)
        else:
            where = f"{benchmark.name}: example {number}"
            sources, parts = _template_parts(template, row, found, hidden, where)
        items.append(
            Item(
                number=number,
                options=tuple(map(option_text, values)),
                sources=sources,
                parts=parts,
                answer=answer_place(row, found, answer, first),
                hidden=hidden,
            )
        )
    return items


def _source_parts(
    raw: str, row: Mapping[str, object], paths: list[Path], hidden: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    """The source up to the last option, hidden fields cut out with their comma."""
    if _is_json(raw):
        spans = [json_span(raw, path) for path in paths]
        start, _ = json_span(raw, ())
        members = list(json_members(raw, start))
        fields = {name: (key, end) for name, key, (_, end) in members}
    else:
        fields = csv_spans(raw, row)
        spans = [fields[str(path[0])] for path in paths]
    cuts = [fields[name] for name in hidden if name in fields]
    last = max(end for _, end in spans)
    edges = sorted(
        [(start, end, place) for place, (start, end) in enumerate(spans)]
        + [(start, end, None) for start, end in cuts if end <= last]
    )
    parts: list[str | int] = []
    at = 0
    for start, end, place in edges:
        parts.append(raw[at:start])
        at = end
        if place is None:
            while raw[at] in ", \t":
                at += 1
        else:
            parts.append(place)
    return tuple(raw[a:b] for a, b in spans), tuple(p for p in parts if p != "")


def _is_json(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def _template_parts(
    template: str,
    row: Mapping[str, object],
    paths: list[Path],
    hidden: frozenset[str],
    where: str,
) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    options = [option_text(value_at(row, path)) for path in paths]
    own = {str(path[0]): i for i, path in enumerate(paths) if len(path) == 1}
    parts: list[str | int] = []
    for literal, field in template_pieces(template):
        parts.append(literal)
        if field is None:
            continue
        if field in hidden:
            raise InputError(
                f"--template {template!r}: {field!r} names a place among the options",
                hint="leave it out: in another order it would name another option",
            )
        if field in own:
            parts.append(own[field])
        elif field == "options" or field == paths[0][0]:
            for i in range(len(paths)):
                parts += ["\n" * (i > 0) + f"{string.ascii_uppercase[i]}. ", i]
        else:
            parts.append(text_of_field(field, row, where))
    if {part for part in parts if isinstance(part, int)} != set(range(len(paths))):
        raise InputError(
            f"--template {template!r}: some options are missing",
            hint="{options} stands for lines A. ..., B. ...",
        )
    return tuple(options), tuple(part for part in parts if part != "")
