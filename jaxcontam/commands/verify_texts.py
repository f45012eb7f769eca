"""What every report with a `texts.jsonl` is checked for before it is judged again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxcontam.report.document import REPORT_NAME, archive_digest, is_sealed
from jaxcontam.report.texts import SCORED, TEXTS_NAME, read_text_rows


def checked_rows(
    directory: Path,
    document: Mapping[str, Any],
    fields: Mapping[str, type] = SCORED,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of `texts.jsonl`, and what its digest and that of the report contradict.

    Args:
        directory: Folder of the report.
        document: The report.
        fields: What each row must have.

    Raises:
        InputError: If the folder has no readable texts.jsonl.
    """
    faults = []
    text = (directory / REPORT_NAME).read_bytes()
    digest, digests = document.get("digest"), document.get("digests")
    if not isinstance(digest, str) or not is_sealed(text, digest):
        faults.append(f"{REPORT_NAME}: its digest is not that of its content")
    rows = read_text_rows(directory, fields)
    found = archive_digest(directory / TEXTS_NAME)
    if not isinstance(digests, Mapping) or digests.get(TEXTS_NAME) != found:
        faults.append(f"{TEXTS_NAME}: its digest is not the one in {REPORT_NAME}")
    return rows, faults
