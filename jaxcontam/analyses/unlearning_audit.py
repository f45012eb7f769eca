"""One task of an unlearning run: its scores, its samples, and its rows."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from jaxcontam.analyses.unlearning_samples import (
    ELSEWHERE,
    Sampled,
    measured,
    rouge_similarities,
    sample_fields,
)
from jaxcontam.analyses.unlearning_texts import Screened, UnlearningText
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.text_scores import LOSS
from jaxcontam.methods.membership.token_scores import MIN_K
from jaxcontam.methods.unlearning import (
    Similarities,
    is_suspicious,
    perplexity_ratios,
    score_ratios,
    screen_result,
    similarity_result,
)
from jaxcontam.report.archive import number_or_none
from jaxcontam.results.unlearning import ScreenedText, ScreenResult, SimilarityResult

T = TypeVar("T", ScreenResult, SimilarityResult)

DECIDING = MIN_K.name
"""Screen that decides, and says which texts to sample from."""
_SCORES = (DECIDING, LOSS.name)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TaskAudit:
    """What is known of one task's texts so far.

    Attributes:
        task: The texts.
        scores: Score and model -> (N,) float64, nats; NaN without a score.
        ratios: Screen -> (N,), unlearned over original.
        bound: See `is_suspicious`.
        sampled: What the unlearned model wrote, or None.
        found: Measures of it, the leading one first.
    """

    task: Screened
    scores: dict[str, np.ndarray]
    ratios: dict[str, np.ndarray]
    bound: float
    sampled: Sampled | None = None
    found: list[Similarities] = dataclasses.field(default_factory=list)

    def suspicious(self, method: str) -> np.ndarray:
        """(N,) bool: the suspicious texts of a screen."""
        return is_suspicious(self.ratios[method], self.bound)

    def results(
        self, *, k: float, words: int, n_samples: int, seed: int
    ) -> list[ScreenResult | SimilarityResult]:
        """Rows of the report: the screens, then what the samples say."""
        shared = {
            "name": self.task.name,
            "fingerprint": self.task.fingerprint,
            "task": self.task.task,
        }
        rows: list[ScreenResult | SimilarityResult] = []
        for method in self.ratios:
            row = screen_result(
                self.ratios[method],
                **shared,
                method=method,
                setting=f"k={k:g}%" if method == DECIDING else "",
                primary=method == DECIDING,
                bound=self.bound,
            )
            rows.append(_noted(row, self._left_out(words)))
        for number, one in enumerate(self.found):
            row = similarity_result(
                one,
                **shared,
                primary=number == 0,
                n_samples=n_samples,
                seed=seed,
            )
            rows.append(_noted(row, self._not_sampled()))
        return rows

    def _left_out(self, words: int) -> list[str]:
        """What of the texts that came in is not screened."""
        notes = []
        if self.task.n_empty:
            notes.append(
                f"texts without words, which give no chunk: {self.task.n_empty}"
            )
        if self.task.n_left_out:
            notes.append(
                f"ends of texts that are shorter than {words} words, which are left "
                f"out: {self.task.n_left_out}"
            )
        return notes

    def _not_sampled(self) -> list[str]:
        """What of the screened texts the model could not be given as it is."""
        notes = []
        scored_N = ~np.isnan(self.ratios[DECIDING])
        bare_N = np.array([not item.has_truth for item in self.task.items])
        if n_bare := int((scored_N & bare_N).sum()):
            notes.append(
                f"{self.task.task} with nothing to compare a sample with, which are "
                f"not sampled from: {n_bare}"
            )
        if self.sampled is not None and self.sampled.n_cut_prompts:
            notes.append(
                "prompts that lost their beginning for want of context: "
                f"{self.sampled.n_cut_prompts}"
            )
        return notes

    def rows(self) -> list[dict[str, Any]]:
        """Rows of `texts.jsonl`, one a text in their order."""
        flags = {method: self.suspicious(method) for method in self.ratios}
        return [
            {
                "id": i,
                "task": self.task.task,
                "source": item.source,
                "text": item.text,
                "scores": {
                    name: number_or_none(v[i]) for name, v in self.scores.items()
                },
                "ratios": {
                    name: number_or_none(v[i]) for name, v in self.ratios.items()
                },
                "suspicious": {name: bool(v[i]) for name, v in flags.items()},
                "prompt": item.prompt,
                **(
                    {}
                    if self.sampled is None
                    else sample_fields(i, self.sampled, self.found)
                ),
            }
            for i, item in enumerate(self.task.items)
        ]


def screened_audit(
    task: Screened, original_N2: np.ndarray, unlearned_N2: np.ndarray, bound: float
) -> TaskAudit:
    """Ratios of both scores.

    Raises:
        InputError: If no text has a score.
    """
    if np.isnan(original_N2 + unlearned_N2).any(axis=1).all():
        raise InputError(
            f"{task.name}: no text has a score",
            hint="texts need a token, or two where the tokenizer has no BOS or EOS",
        )
    return TaskAudit(
        task=task,
        scores={
            f"{score}_{which}": values_N2[:, column]
            for which, values_N2 in (
                ("original", original_N2),
                ("unlearned", unlearned_N2),
            )
            for column, score in enumerate(_SCORES)
        },
        ratios={
            DECIDING: score_ratios(original_N2[:, 0], unlearned_N2[:, 0]),
            "perplexity": perplexity_ratios(original_N2[:, 1], unlearned_N2[:, 1]),
        },
        bound=bound,
    )


def audit_from_rows(
    screen: ScreenResult,
    measures: Sequence[SimilarityResult],
    rows: Sequence[ScreenedText],
) -> TaskAudit:
    """Undo `TaskAudit.rows`; what can be measured without a model is measured again.

    Args:
        screen: A screen of the task, as the report states it.
        measures: Likenesses of samples, as the report states them.
        rows: The texts of the task.

    Raises:
        KeyError: If a score is missing.
        InputError: If no text has a score.
    """
    items = (
        UnlearningText(
            source=row.source, text=row.text, prompt=row.prompt, truth=row.truth
        )
        for row in rows
    )
    original, unlearned = (
        np.array(
            [_floats([row.scores[f"{one}_{which}"] for one in _SCORES]) for row in rows]
        )
        for which in ("original", "unlearned")
    )
    audit = screened_audit(
        Screened(task=screen.task, name=screen.benchmark, items=tuple(items)),
        original,
        unlearned,
        screen.bound,
    )
    if not measures:
        return audit
    has_samples = np.array([bool(row.samples) for row in rows])
    suspicious = audit.suspicious(DECIDING)
    chosen: list[int] = np.flatnonzero(has_samples).tolist()
    sampled = Sampled(
        selected=np.flatnonzero(has_samples & suspicious),
        unselected=np.flatnonzero(has_samples & ~suspicious),
        samples={i: rows[i].samples for i in chosen},
        truths={i: rows[i].truth for i in chosen},
        n_cut_prompts=0,
    )
    found = [rouge_similarities(sampled)]
    for row in measures[1:]:
        own, other = row.method, row.method + ELSEWHERE
        one = measured(
            own,
            sampled,
            lambda i, j, own=own, other=other: _floats(
                getattr(rows[i], own if i == j else other)
            ),
            elsewhere=any(getattr(text, other) for text in rows),
        )
        found.append(dataclasses.replace(one, n_refused=row.n_refused))
    return dataclasses.replace(audit, sampled=sampled, found=found)


def _noted(row: T, notes: Sequence[str]) -> T:
    """The primary row with further warnings; others as they are."""
    more = tuple(notes) if row.primary else ()
    return dataclasses.replace(row, warnings=row.warnings + more)


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
