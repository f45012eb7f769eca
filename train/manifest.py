"""Manifest of a training run: which sets were planted where."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.reports.report_files import replace_bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetOverlap:
    """Overlap of a set's examples with other texts of the training run.

    Examples are found by the rules of `jaxcontam overlap`, each alone and in any form;
    paraphrases are not found.

    Attributes:
        n_compared: Examples of at least 8 words; shorter ones occur by chance and are
            not searched for.
        background: By rule, examples found in the background documents; one example
            may meet several rules.
        n_background: Examples found there by any rule.
        n_frame: Other examples, of which only words were found there that 10 or more
            examples share: the frame around them.
        sets: By name of another set, examples found in its planted texts, or in its
            examples if it is a control; frames do not count.
    """

    n_compared: int
    background: dict[str, int]
    n_background: int
    n_frame: int
    sets: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetRecord:
    """One test set and every place where the training stream holds it.

    Attributes:
        copies: Duplication count; 0 for a control that was never injected.
        shuffled: True if each copy has its own order, as spread copies have.
        fingerprint: Digest of the examples in published order.
        content_digest: Digest of the examples whatever their order.
        token_offsets: Stream index of each copy's first id; empty for a spread set.
        orders: Order of each copy: one list of example indices a copy for shuffled
            sets, empty when every copy has the published order.
        steps: For each copy, the optimiser steps (from 1) that trained on any of it.
        n_tokens: Ids of one copy.
        file: The set's file beside the manifest: the examples as audits read them.
        text_field: Field of that file's records which is the text; None where the
            line is.
        layout: `block` for copies in one piece; `spread` if each example of a copy has
            its own place, and so no order.
        example_offsets: For a spread set, by copy, the stream index of each example's
            first id, in the order of `file`.
        when: Planned time of the copies: `uniform` (in random order with all else),
            `clustered` (together, at a random time), or a fraction of training for each
            copy in turn. `steps` has the result.
        form: Planted form: `raw` lines, texts of a `template`, or a `paraphrase` of
            each example.
        template: Template of the texts; None for raw lines.
        planted_file: File of the planted texts, records with a field `text`, if they
            differ from those of `file`.
        held_out_of: For a control, the planted set whose other half it is.
        overlap: Result of the search before training; None if there was none.
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
    text_field: str | None = None
    layout: str = "block"
    example_offsets: tuple[tuple[int, ...], ...] = ()
    when: str | tuple[float, ...] = "uniform"
    form: str = "raw"
    template: str | None = None
    planted_file: str | None = None
    held_out_of: str | None = None
    overlap: SetOverlap | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Training data and settings of a model.

    Attributes:
        code: Git commit of the code, or None.
        seed: Seeds the weights, the stream and the order of batches.
        corpus_digest: SHA-256 of the background documents that the stream was
            drawn from.
        max_example_tokens: Cut of an example; None for no cut.
        context: Tokens a training row predicts at once.
        n_canary_tokens: Ids of the stream in canary copies.
        finished: False until the last step is done.
        stream: File of the packed stream (NumPy array of ids).
        stream_digest: SHA-256 of the stream's ids as little-endian int32.
        first_id: Id before each document and each copy.
        n_left_out: Documents that `train.filters` refused.
        n_validation_tokens: Targets that were held out and scored along training.
        validation_bytes: Their bytes of text.
        recipe: Every field of `Config`.
        init_model: Model that training started from; None for random weights.
        init_fingerprint: Digest of its weights.
        allow_overlap: True if training went on although a control was found in what
            is trained on.
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
    stream_digest: str | None = None
    tokenizer_digest: str | None = None
    first_id: int | None = None
    n_left_out: int = 0
    n_validation_tokens: int = 0
    validation_bytes: int = 0
    recipe: dict[str, Any] | None = None
    init_model: str | None = None
    init_fingerprint: str | None = None
    allow_overlap: bool = False
    sets: tuple[SetRecord, ...]


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write as JSON, whole or not at all."""
    replace_bytes(path, manifest_json(manifest).encode())


def manifest_json(manifest: Manifest) -> str:
    """Content of the manifest's file."""
    return json.dumps(dataclasses.asdict(manifest), indent=1) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InputError: If the file is missing or is not a manifest of this schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise InputError(f"{path}: no manifest ({e.strerror})") from e
    except ValueError as e:
        raise InputError(f"{path}: not a manifest ({e})") from e
    return manifest_from_json(text, str(path))


def manifest_from_json(text: str, where: str) -> Manifest:
    """The manifest of a file's text."""
    try:
        fields = json.loads(text)
        # Before the fields: those of another schema have other names.
        if fields["schema"] != 1:
            raise InputError(
                f"{where}: schema {fields['schema']} (this version reads 1)"
            )
        sets = tuple(_set(row) for row in fields.pop("sets"))
        return Manifest(**fields, sets=sets)
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise InputError(f"{where}: not a manifest ({e})") from e


def _set(row: Mapping[str, Any]) -> SetRecord:
    """A set from its JSON; fields that an older manifest lacks have their default."""
    fields = {name: _tuples(value) for name, value in dict(row).items()}
    if fields.get("overlap") is not None:
        fields["overlap"] = SetOverlap(**fields["overlap"])
    return SetRecord(**fields)


def _tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
