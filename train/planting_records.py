"""From a plan to what training plants, and to the record of what it planted."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import parse_records
from jaxcontam.data.encoding import Encoded
from jaxcontam.data.training_manifest import PlantedSet
from jaxcontam.errors import InputError
from train.plan import PlannedSet
from train.presets import Preset
from train.stream import Stream, rows_of_copies

SETS_DIR = "sets"
"""Folder of the sets as audits read them."""

PLANTED_DIR = "planted"
"""Folder of texts that were planted in place of a set's own."""

_TEXT_FIELD = "text"


def planted_sets(
    sets: Sequence[PlannedSet],
    encoded: Sequence[Encoded],
    stream: Stream,
    starts_R: np.ndarray,
    preset: Preset,
) -> tuple[PlantedSet, ...]:
    """The manifest's records of the sets.

    Args:
        sets: The sets.
        encoded: Ids of each set's `planted` texts.
        stream: Holds their copies.
        starts_R: Starts of the R rows in training order; those that do not fill a step
            are not trained on.
        preset: Gives the row length and the rows of a step.
    """
    n_steps = len(starts_R) // preset.batch_rows
    return tuple(
        _planted_set(planned, ids, stream, starts_R, preset, n_steps)
        for planned, ids in zip(sets, encoded, strict=True)
    )


def _planted_set(
    planned: PlannedSet,
    encoded: Encoded,
    stream: Stream,
    starts_R: np.ndarray,
    preset: Preset,
    n_steps: int,
) -> PlantedSet:
    name, benchmark = planned.name, planned.benchmark
    file, text_field, _ = set_file(name, benchmark.texts)
    steps = []
    for rows in rows_of_copies(
        stream, name, encoded, starts_R=starts_R, context=preset.context
    ):
        seen = np.unique(rows // preset.batch_rows + 1)
        steps.append(tuple(seen[seen <= n_steps].tolist()))
    return PlantedSet(
        name=name,
        copies=planned.copies,
        shuffled=name in stream.orders,
        n_examples=len(benchmark),
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        token_offsets=stream.offsets[name],
        orders=stream.orders.get(name, ()),
        steps=tuple(steps),
        n_tokens=int(encoded.lengths.sum()),
        file=f"{SETS_DIR}/{file}",
        text_field=text_field,
        layout=planned.layout,
        example_offsets=stream.example_offsets.get(name, ()),
        when=planned.when,
        form=planned.form,
        template=planned.template,
        planted_file=f"{PLANTED_DIR}/{name}.jsonl" if planned.texts_planted else None,
        held_out_of=planned.held_out_of,
    )


def write_set(planned: PlannedSet, folder: Path) -> None:
    """Write a set's file below `folder`, and the texts planted in place of its own."""
    name, _, content = set_file(planned.name, planned.benchmark.texts)
    _write(folder / SETS_DIR / name, content)
    if planned.texts_planted is not None:
        path = folder / PLANTED_DIR / f"{planned.name}.jsonl"
        _write(path, _records(planned.texts_planted))


def set_file(name: str, texts: tuple[str, ...]) -> tuple[str, str | None, str]:
    """A file that reads back as exactly these texts.

    Lines as they are where that gives them back; else, such as for a text over
    several lines, records with a field `text`.

    Returns:
        Its name, the field that is the text or None, and its content.
    """
    content = "".join(f"{text}\n" for text in texts)
    for suffix in (".jsonl", ".txt"):
        path = Path(name + suffix)
        try:
            # A reader takes a mark at the beginning for one of the encoding.
            read = parse_records(path, content.removeprefix("\ufeff"))
        except InputError:
            continue
        is_form = suffix == ".txt" or all(row is not None for _, _, row in read)
        if is_form and tuple(text for _, text, _ in read) == texts:
            return path.name, None, content
    return f"{name}.jsonl", _TEXT_FIELD, _records(texts)


def _records(texts: tuple[str, ...]) -> str:
    return "".join(
        json.dumps({_TEXT_FIELD: text}, ensure_ascii=False) + "\n" for text in texts
    )


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8"))
