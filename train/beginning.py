"""What a run writes before its first step, and whose beginning stands in a folder."""

import json
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.training_manifest import (
    Manifest,
    manifest_json,
    read_manifest,
    write_manifest,
)
from jaxcontam.errors import InputError
from train.audit_log import AUDITS_NAME
from train.earlier import MANIFEST_NAME
from train.export import INIT_CONFIG_NAME, TOKENIZER_DIR
from train.metrics import METRICS_NAME
from train.page import PAGE_NAME
from train.plan import PlannedSet
from train.planting_records import write_set
from train.prepare import Prepared, Start

LOGS = (METRICS_NAME, AUDITS_NAME, PAGE_NAME)


def holds_run(out: Path, manifest: Manifest) -> bool:
    """Whether a folder says of itself that it holds this run, as far as it is."""
    try:
        here = read_manifest(out / MANIFEST_NAME)
    except InputError:
        return False
    return manifest_json(here) == manifest_json(manifest)


def write_beginning(
    manifest: Manifest,
    prepared: Prepared,
    sets: Sequence[PlannedSet],
    start: Start | None,
    *,
    out: Path,
) -> None:
    """Write all that is known of a run before its first step, the manifest last.

    Logs of another run are deleted.
    """
    for name in (MANIFEST_NAME, *LOGS):
        (out / name).unlink(missing_ok=True)
    for planned in sets:
        write_set(planned, out)
    prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
    (out / INIT_CONFIG_NAME).unlink(missing_ok=True)
    if start is not None:
        text = json.dumps(dict(start.raw_config), indent=1) + "\n"
        (out / INIT_CONFIG_NAME).write_text(text, encoding="utf-8")
    write_manifest(manifest, out / MANIFEST_NAME)


def beginning_files(manifest: Manifest) -> list[str]:
    """What `write_beginning` writes; first the manifest, which says: not finished."""
    sets = [file for row in manifest.sets for file in (row.file, row.planted_file)]
    files = (MANIFEST_NAME, TOKENIZER_DIR, INIT_CONFIG_NAME, *sets)
    return [file for file in files if file is not None]
