"""One file a model of the power study, so that a killed run goes on."""

import dataclasses
import json
from pathlib import Path

from eval.power.model import ModelRecord, Outcome, Study
from eval.study import inputs_digest
from jaxcontam.scoring.identity import cpu_name

RECORDS_DIR = "models"


def record_path(out: Path, study: Study, seed: int) -> Path:
    """Where the record of a model stands."""
    return out / RECORDS_DIR / f"{study.name}-{seed}.json"


def record_key(study: Study, seed: int, *, corpus: str, code: str | None) -> str:
    """Digest of all that a record follows from, the kind of CPU too.

    Args:
        study: The population.
        seed: Of the model.
        corpus: Digest of its texts.
        code: Git commit; None for any.
    """
    return inputs_digest(dataclasses.asdict(study), seed, corpus, code, cpu_name())


def read_record(path: Path, key: str | None) -> ModelRecord | None:
    """A finished model's record, if it stands there under this key; None takes any.

    Both its key with the code that made it and that without are taken.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        keys = {fields.pop("key"), fields.pop("any_code_key", None)}
        if key is not None and key not in keys:
            return None
        rows = tuple(Outcome(**row) for row in fields.pop("rows"))
        return ModelRecord(rows=rows, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(
    path: Path, key: str, record: ModelRecord, *, any_code_key: str | None = None
) -> None:
    """Write a record whole or not at all."""
    partial = path.with_suffix(".partial")
    fields = {"key": key, "any_code_key": any_code_key, **dataclasses.asdict(record)}
    partial.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    partial.replace(path)
