"""Published texts with rewrites of each, from a .jsonl or .json file."""

from pathlib import Path

from jaxcontam.data.benchmark import check_text, load_benchmark
from jaxcontam.data.templates import field_of, text_of_field
from jaxcontam.errors import InputError


def load_versions(
    path: Path,
    *,
    text_field: str = "text",
    variants_field: str = "variants",
    limit: int | None = None,
) -> tuple[list[tuple[str, ...]], list[str], int]:
    """Read rows such as `{"text": "...", "variants": ["...", "..."]}`.

    Returns:
        The versions of each row, the published one first; the place of each row; and
        the number of rows left out because no rewrite differs from the text.
    """
    benchmark = load_benchmark(path, limit=limit)
    rows, places, n_left_out = [], [], 0
    for number, row in enumerate(benchmark.rows, 1):
        where = f"{path}: row {number}"
        text = text_of_field(text_field, row, where)
        hint = "--variants-field names the list of rewrites"
        variants = field_of(row, variants_field, where, hint=hint)
        if isinstance(variants, str):
            variants = [variants]
        if not isinstance(variants, list) or not all(
            isinstance(variant, str) for variant in variants
        ):
            raise InputError(
                f"{where}: {variants_field!r} is not a list of strings",
                hint='write "variants": ["first rewrite", "second rewrite"]',
            )
        for version in [text, *variants]:
            check_text(version, where)
            if not version.strip():
                raise InputError(f"{where}: a version is blank")
        if all(variant == text for variant in variants):
            n_left_out += 1
            continue
        rows.append((text, *variants))
        places.append(where)
    if not rows:
        raise InputError(f"{path}: no row has a rewrite that differs from its text")
    return rows, places, n_left_out
