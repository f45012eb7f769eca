"""Trials of entries on the sets of one model."""

import dataclasses
import hashlib
import time
from pathlib import Path

import numpy as np

from eval.leaderboard.detector import Entry, OverBudgetError
from eval.leaderboard.population import Arena, subject_of
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.sources import source_digest

# Beside the packages, what trials follow from; entries have digests of their own.
_EVAL = Path(__file__).resolve().parent.parent
_SOURCES = ("leaderboard/*.py", "python_docs.py")
_ENTRIES = "entries.py"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one entry said of one set of one model.

    Attributes:
        entry: Its name.
        seed: Seeds the model.
        copies: How often the set was planted.
        score: None where the budget was too small.
        p_value: None too where the entry gives scores alone.
        passes: Tokens read, over those of the set.
        seconds: CPU time; less where another entry had asked the same before.
        refused: Why the budget was too small.
    """

    entry: str
    seed: int
    copies: int
    score: float | None
    p_value: float | None
    passes: float
    seconds: float
    refused: str | None = None


class EntryError(Exception):
    """An entry's own code broke; the cause is its exception."""


def try_entry(
    entry: Entry,
    arena: Arena,
    *,
    passes: float,
    reference: Scorer | None,
    counts_V: np.ndarray | None,
) -> tuple[Trial, ...]:
    """One entry on every tested set of a model.

    Args:
        entry: The detector.
        arena: The model.
        passes: The budget of each set, in passes over it.
        reference: See `train_reference`; None if the entry needs none.
        counts_V: See `corpus_counts`; None if the entry needs none.

    Raises:
        EntryError: If the entry raises anything but `OverBudgetError`, says that it
            gives p-values and gives none, or gives one that it does not say.
    """
    trials = []
    for number, copies in enumerate(arena.copies):
        subject = subject_of(
            arena, number, entry, passes=passes, reference=reference, counts_V=counts_V
        )
        start = time.process_time()
        score = p_value = refused = None
        try:
            found = entry.detect(subject)
            score, p_value = found.score, found.p_value
            if (p_value is not None) != (entry.gives == "p-value"):
                raise ValueError(
                    f"it says that it gives a {entry.gives}, got p_value={p_value}"
                )
        except OverBudgetError as e:
            refused = str(e)
        except Exception as e:
            # Whatever a file of the user raises: the other entries go on.
            raise EntryError(f"{type(e).__name__}: {e}") from e
        trials.append(
            Trial(
                entry=entry.name,
                seed=arena.planned.seed,
                copies=copies,
                score=score,
                p_value=p_value,
                passes=subject.budget.passes,
                seconds=time.process_time() - start,
                refused=refused,
            )
        )
    return tuple(trials)


def trial_sources() -> str:
    """Digest of all code that trials follow from, but for that of single entries.

    It needs no git, and a new document or entry makes no trial obsolete.
    """
    entries = "eval.leaderboard.entries"
    ours = source_digest("eval.leaderboard.trials", entries, unread=(entries,))
    digest = hashlib.sha256(ours.encode())
    for pattern in _SOURCES:
        for path in sorted(_EVAL.glob(pattern)):
            if path.name == _ENTRIES:
                continue
            digest.update(str(path.relative_to(_EVAL)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"
