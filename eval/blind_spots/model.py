"""One model of the study: trained with all forms at once, looked at by all methods."""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from eval.blind_spots.forms import FormSet, draw_sets
from eval.blind_spots.seen import VARIANTS_WITHOUT, Seen, all_seen, versions_seen
from eval.planted import trained
from eval.python_docs import Question
from eval.study import inputs_digest
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.journal import Journal
from jaxcontam.data.manifest import Manifest, read_manifest
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name
from jaxcontam.scoring.local import local_scorer
from train.earlier import MANIFEST_NAME, MODEL_DIR
from train.prepare import RunOptions
from train.presets import PRESETS
from train.sources import corpus_digest

RECORD_NAME = "seen.json"
_JOURNAL_NAME = "completions.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the models of the study are.

    Attributes:
        name: Of this part of the study.
        preset: Name of the preset.
        n_examples: Of each set.
        copies: Of the forms that are planted again and again.
        background_tokens: Of documents without questions.
        n_asked: Instances of a set that replication asks for.
        new_tokens: Of a completion, at most.
        n_permutations: Of the test of a set's scores.
        batch_tokens: Of a scorer's batch; None chooses by platform. Where batches are
            many they have one shape, which is compiled once.
    """

    name: str
    preset: str
    n_examples: int
    copies: int
    background_tokens: int
    n_asked: int
    new_tokens: int
    n_permutations: int
    batch_tokens: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """What was found on one model.

    Attributes:
        scale: Name of its part of the study.
        copies: See `Scale`.
        seed: Of sets, stream, weights and tests.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_planted_tokens: Ids of all copies of all sets.
        corpus_digest: Of what it was trained on.
        code: Commit that trained it.
        cpu_seconds: Training and looking, compilation included.
        rows: Every method on every set.
    """

    scale: str
    copies: int
    seed: int
    n_parameters: int
    n_tokens: int
    n_planted_tokens: int
    corpus_digest: str
    code: str | None
    cpu_seconds: float
    rows: tuple[Seen, ...]


def model_record(
    scale: Scale,
    documents: Sequence[str],
    questions: Sequence[Question],
    *,
    seed: int,
    out: Path,
    any_code: bool = False,
) -> ModelRecord:
    """Plant every form in a model, train it, and let every method look.

    Args:
        scale: See `Scale`.
        documents: Background.
        questions: From `forms.eligible`.
        seed: Of sets, stream, weights and tests.
        out: Folder of the model; a finished one of the same inputs is taken.
        any_code: Take one that other code trained, too.

    Raises:
        InputError: If there are too few questions.
        KeyboardInterrupt: If training was asked to stop; its checkpoint is written.
    """
    start = time.process_time()
    sets = draw_sets(
        questions, n_examples=scale.n_examples, copies=scale.copies, seed=seed
    )
    manifest = _finished(out, scale, sets, documents, seed=seed) if any_code else None
    manifest = manifest or trained(
        documents,
        [one.planned for one in sets],
        PRESETS[scale.preset],
        out=out,
        seed=seed,
        options=RunOptions(
            background_tokens=scale.background_tokens,
            # A phrase or two of these texts stand twice; all sets are drawn from one
            # pool, so what the background holds of them it holds of all alike.
            allow_overlap=True,
        ),
    )
    checkpoint = load_checkpoint(str(out / MODEL_DIR))
    make_folder(out)
    rows = all_seen(
        sets,
        checkpoint,
        Journal(out / _JOURNAL_NAME),
        n_asked=scale.n_asked,
        new_tokens=scale.new_tokens,
        n_permutations=scale.n_permutations,
        seed=seed,
        batch_tokens=scale.batch_tokens,
    )
    return ModelRecord(
        scale=scale.name,
        copies=scale.copies,
        seed=seed,
        n_parameters=checkpoint.n_parameters,
        n_tokens=manifest.n_tokens,
        n_planted_tokens=manifest.n_canary_tokens,
        corpus_digest=manifest.corpus_digest,
        code=manifest.code,
        cpu_seconds=round(time.process_time() - start, 1),
        rows=tuple(rows),
    )


def completed(
    record: ModelRecord,
    scale: Scale,
    documents: Sequence[str],
    questions: Sequence[Question],
    *,
    out: Path,
) -> ModelRecord | None:
    """A record with the tests of versions that the code which made it did not have.

    Nothing else is looked at again.

    Args:
        record: Of a finished model.
        scale: Its scale.
        documents: Background.
        questions: From `forms.eligible`.
        out: Folder of the model.

    Returns:
        The record itself if it lacks nothing; None if it does and the model is gone.
    """
    start = time.process_time()
    sets = draw_sets(
        questions,
        n_examples=scale.n_examples,
        copies=scale.copies,
        seed=record.seed,
    )
    have = {row.form for row in record.rows if row.method == VARIANTS_WITHOUT}
    lacking = [
        one
        for one in sets
        if one.versions_without is not None and one.form.name not in have
    ]
    if not lacking:
        return record
    if _finished(out, scale, sets, documents, seed=record.seed) is None:
        return None
    checkpoint = load_checkpoint(str(out / MODEL_DIR))
    scorer = local_scorer(checkpoint.decoder, batch_tokens=scale.batch_tokens)
    rows = [
        row
        for one in lacking
        for row in versions_seen(one, checkpoint, scorer, seed=record.seed)
        if row.method == VARIANTS_WITHOUT
    ]
    seconds = round(record.cpu_seconds + time.process_time() - start, 1)
    return dataclasses.replace(record, rows=(*record.rows, *rows), cpu_seconds=seconds)


def _finished(
    out: Path,
    scale: Scale,
    sets: Sequence[FormSet],
    documents: Sequence[str],
    *,
    seed: int,
) -> Manifest | None:
    """The manifest of a finished model of these texts, whatever code trained it."""
    try:
        manifest = read_manifest(out / MANIFEST_NAME)
        same_run = (manifest.seed, manifest.preset, manifest.corpus_digest) == (
            seed,
            scale.preset,
            corpus_digest(documents),
        )
        if not (manifest.finished and same_run and (out / MODEL_DIR).is_dir()):
            return None
        for row, one in zip(manifest.sets, sets, strict=True):
            planned = one.planned
            same_set = (row.fingerprint, row.copies, row.shuffled, row.layout) == (
                planned.benchmark.fingerprint,
                planned.copies,
                planned.shuffled or planned.layout == "spread",
                planned.layout,
            )
            if not same_set:
                return None
            if planned.texts_planted is not None:
                file = load_benchmark(out / str(row.planted_file), text_field="text")
                if file.texts != planned.texts_planted:
                    return None
    except (InputError, ValueError):
        return None
    return manifest


def record_key(
    scale: Scale,
    seed: int,
    *,
    corpus: str,
    code: str | None,
) -> str:
    """Digest of all that a record follows from.

    Args:
        scale: Of the model.
        seed: Of the model.
        corpus: Digest of documents and questions.
        code: Commit; None leaves it out, so that records of any code have the key.
    """
    fields = dataclasses.asdict(scale)
    # How it is computed, not what.
    del fields["batch_tokens"]
    return inputs_digest(fields, seed, corpus, code, cpu_name())


def read_record(folder: Path, key: str, *, by: str) -> ModelRecord | None:
    """The finished record of a folder if it stands there under this key.

    Args:
        folder: Of the model.
        key: From `record_key`.
        by: `key`, or `any_code_key` for that without the commit.
    """
    try:
        fields = json.loads((folder / RECORD_NAME).read_text(encoding="utf-8"))
        if fields[by] != key:
            return None
        record = fields["record"]
        rows = tuple(Seen(**row) for row in record.pop("rows"))
        return ModelRecord(rows=rows, **record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(folder: Path, record: ModelRecord, **keys: str) -> None:
    """Write a record whole or not at all, with its keys by name."""
    make_folder(folder)
    text = json.dumps({**keys, "record": dataclasses.asdict(record)}) + "\n"
    replace_bytes(folder / RECORD_NAME, text.encode())
