"""One model of the study: trained with all forms at once, looked at by all methods."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from eval.blind_spots.forms import Scale, draw_sets
from eval.blind_spots.seen import Seen, all_seen
from eval.planted import trained
from eval.python_docs import Question
from jaxcontam.data.journal import Journal
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.report.document import make_folder
from train.earlier import MODEL_DIR
from train.prepare import RunOptions
from train.presets import PRESETS

_JOURNAL_NAME = "completions.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """What was found on one model.

    Attributes:
        scale: Name of its part of the study.
        copies: See `Scale`.
        seed: Seeds sets, stream, weights and tests.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_planted_tokens: Ids of all copies of all sets.
        corpus_digest: Digest of what it was trained on.
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
) -> ModelRecord:
    """Plant every form in a model, train it, and let every method look.

    Args:
        scale: See `Scale`.
        documents: Background.
        questions: From `forms.eligible`.
        seed: Seeds sets, stream, weights and tests.
        out: Folder of the model; a finished one of the same inputs is taken.

    Raises:
        InputError: If there are too few questions.
        KeyboardInterrupt: If training was asked to stop; its checkpoint is written.
    """
    start = time.process_time()
    sets = draw_sets(
        questions, n_examples=scale.n_examples, copies=scale.copies, seed=seed
    )
    manifest = trained(
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
        sets, checkpoint, Journal(out / _JOURNAL_NAME), scale=scale, seed=seed
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
