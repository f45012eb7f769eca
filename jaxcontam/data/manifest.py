"""The record of what was planted where: written by training, read by audits."""

import dataclasses
import json
from pathlib import Path

from jaxcontam.errors import InputError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlantedSet:
    """One test set and every place where the training stream holds it.

    Attributes:
        name: The set's own name.
        copies: Duplication count; 0 for a control that was never injected.
        shuffled: True if each copy has an order of its own.
        n_examples: Examples in the set.
        fingerprint: Digest of the examples in published order.
        content_digest: Digest of the examples whatever their order.
        token_offsets: Where each copy's first id stands in the stream.
        orders: Order of each copy: one list of example indices a copy for shuffled
            sets, empty when every copy has the published order.
        steps: For each copy, the optimiser steps (from 1) that trained on any of it.
        n_tokens: Ids of one copy.
        file: The set's file beside the manifest.
    """

    name: str
    copies: int
    shuffled: bool
    n_examples: int
    fingerprint: str
    content_digest: str
    token_offsets: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[int, ...], ...]
    n_tokens: int
    file: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a model was trained on.

    Attributes:
        schema: Version of this file's layout.
        jaxcontam: Version of the code.
        code: Git commit of the code, or None.
        seed: Seeds the weights, the stream and the order of batches.
        preset: Name of the model preset.
        corpus_digest: SHA-256 of the background documents that the stream was
            drawn from.
        separator: Text after each example.
        max_example_tokens: Cut of an example; None for no cut.
        context: Tokens a training row predicts at once.
        n_tokens: Length of the stream.
        n_canary_tokens: Of which in canary copies.
        n_steps: Optimiser steps.
        finished: False until the last step is done.
        stream: File of the packed stream (NumPy array of ids).
        sets: The planted sets and the controls.
    """

    schema: int = 1
    jaxcontam: str
    code: str | None
    seed: int
    preset: str
    corpus_digest: str
    separator: str
    max_example_tokens: int | None
    context: int
    n_tokens: int
    n_canary_tokens: int
    n_steps: int
    finished: bool
    stream: str
    sets: tuple[PlantedSet, ...]


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write as JSON, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(dataclasses.asdict(manifest), indent=1) + "\n")
    partial.replace(path)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InputError: If the file is missing or is not a manifest of this schema.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        sets = tuple(
            PlantedSet(
                **{
                    **row,
                    "token_offsets": tuple(row["token_offsets"]),
                    "orders": tuple(tuple(order) for order in row["orders"]),
                    "steps": tuple(tuple(copy) for copy in row["steps"]),
                }
            )
            for row in fields.pop("sets")
        )
        manifest = Manifest(**fields, sets=sets)
    except OSError as e:
        raise InputError(f"{path}: no manifest ({e.strerror})") from e
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"{path}: not a manifest ({e})") from e
    if manifest.schema != 1:
        raise InputError(f"{path}: schema {manifest.schema} (this version reads 1)")
    return manifest
