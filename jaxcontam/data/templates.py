"""Texts of examples made from the fields of their records."""

import string
from collections.abc import Mapping

from jaxcontam.errors import InputError, nearest


def fill_template(template: str, row: Mapping[str, object] | None, where: str) -> str:
    r"""Fill `{field}` places of a template; `\n` may be written as two characters.

    Only plain field names are replaced: no attributes, indices or formats.

    Raises:
        InputError: If the template is malformed or a field does not exist.
    """
    parts = []
    for literal, field in template_pieces(template):
        parts.append(literal)
        if field is not None:
            parts.append(text_of_field(field, row, where))
    return "".join(parts)


def template_pieces(template: str) -> list[tuple[str, str | None]]:
    """Literal texts of a template, each with the field after it; None for none.

    Raises:
        InputError: If the template is malformed or a field has a format.
    """
    try:
        pieces = list(string.Formatter().parse(typed_newlines(template)))
    except ValueError as e:
        raise InputError(f"--template {template!r}: {e}") from e
    for _, field, spec, conversion in pieces:
        if spec or conversion:
            raise InputError(
                f"--template {template!r}: {field!r} has a format",
                hint="write plain names in braces, such as {question}",
            )
    return [(literal, field) for literal, field, _, _ in pieces]


def typed_newlines(text: str) -> str:
    r"""Replace `\n` typed as two characters by a line feed."""
    return text.replace("\\n", "\n")


def text_of_field(field: str, row: Mapping[str, object] | None, where: str) -> str:
    """The text of one field; numbers and lists as JSON writes them.

    Raises:
        InputError: If the record lacks the field; names those that exist.
    """
    import json

    if row is None:
        raise InputError(
            f"{where}: no field {field!r} (the example is plain text)",
            hint="leave out --template and --text-field to use the whole line",
        )
    if field not in row:
        raise InputError(
            f"{where}: no field {field!r} (it has: {', '.join(row)})",
            hint=f"{nearest(field, row)}name a field that every record has",
        )
    value = row[field]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
