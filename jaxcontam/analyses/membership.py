"""Which texts a model saw, by scores that are judged against known texts.

Read (`known_texts`), plan (`membership_plan`), score (here), judge
(`membership_judging`).

Dimension key
    N  texts of a run
    M  scores
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxcontam.analyses.known_texts import (
    NONMEMBER,
    Source,
    check_sides,
    read_texts,
)
from jaxcontam.analyses.membership_judging import Judged, Table, judged
from jaxcontam.analyses.membership_plan import (
    AUTO,
    WEIGHTS,
    MembershipPlan,
    choose,
    plan_membership,
)
from jaxcontam.analyses.method_notes import method_notes
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.neighbours import edited
from jaxcontam.methods.membership.plan import Inputs, score_texts
from jaxcontam.methods.membership.text_model import text_model_of
from jaxcontam.report.membership import text_rows, write_membership
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.results import Report
from jaxcontam.results.membership import BlindBaseline, ScoreResult, SetResult
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.scoring.stored import NonFiniteScoreError, Progress


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MembershipAnalysis:
    """What scores say of texts.

    Attributes:
        plan: What was scored.
        table: (N, M) scores, NaN for texts without one; higher = member.
        judged: AUCs, baselines, thresholds, p-values and warnings.
        fprs: False-positive rates of the operating points.
        convention: Whether a rate may be reached (`le`) or must stay below (`lt`).
        n_tokens: (N,) scored tokens of each text.
        tokens_scored: Target tokens of all passes.
        cached_tokens: Those whose scores a store held.
        started: ISO 8601, UTC.
        wall_seconds: Of the analysis, without opening the model.
    """

    plan: MembershipPlan
    table: Table
    judged: Judged
    fprs: tuple[float, ...]
    convention: Literal["le", "lt"]
    n_tokens: np.ndarray
    tokens_scored: int
    cached_tokens: int
    started: str
    wall_seconds: float

    @property
    def results(self) -> tuple[ScoreResult | SetResult, ...]:
        """One a score where both sides are known; one for a set in question."""
        settings = {m.name: m.setting for m in self.plan.chosen.methods}
        return tuple(
            dataclasses.replace(row, setting=settings.get(row.method, ""))
            if isinstance(row, ScoreResult)
            else row
            for row in self.judged.results
        )

    @property
    def auc(self) -> dict[str, float]:
        """Score -> probability that a member outscores a non-member."""
        return {row.method: row.auc for row in self.judged.results}

    @property
    def blind(self) -> tuple[BlindBaseline, ...]:
        """How well the sides can be told apart without the model."""
        return self.judged.blind

    @property
    def verdict(self) -> str | None:
        """Of the score that decides; None where no side is known."""
        return next((row.verdict for row in self.judged.results if row.primary), None)

    def save(
        self,
        directory: str | Path,
        *,
        command: Sequence[str] = ("membership",),
        started: str | None = None,
        wall_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Write report.json, texts.jsonl and report.html.

        Args:
            directory: Folder; it is made, and a report in it is replaced.
            command: The words that made the analysis.
            started: When a longer run began that the analysis is a part of.
            wall_seconds: That run's.

        Returns:
            The document of report.json.
        """
        # matplotlib and jinja2 take a third of a second to import: only for a page.
        from jaxcontam.report.membership_page import write_membership_page

        out = Path(directory)
        document = write_membership(
            self._report(tuple(command), started, wall_seconds), self._rows(), out
        )
        write_membership_page(
            document, self.judged.pictures, out, method_notes(document)
        )
        return document

    def _report(
        self, command: tuple[str, ...], started: str | None, seconds: float | None
    ) -> Report:
        run, chosen, found = self.plan.run, self.plan.chosen, self.judged
        model, kept_N = self.plan.model.model, ~self.plan.left_out
        return Report(
            command=command,
            seed=self.plan.seed,
            started=started or self.started,
            wall_seconds=self.wall_seconds if seconds is None else seconds,
            model=model.info,
            device=model.device,
            versions=library_versions(),
            min_effect=None,
            results=self.results,
            blind=found.blind,
            thresholds=found.thresholds,
            study={
                "name": run.name,
                "fingerprint": run.fingerprint,
                "primary": chosen.primary,
                "fprs": list(self.fprs),
                "convention": self.convention,
                "n_texts": len(run.texts),
                "n_left_out": int(self.plan.left_out.sum()),
                "n_unscored": int((self.n_tokens[kept_N] == 0).sum()),
                "tokens_scored": self.tokens_scored,
                "cached_tokens": self.cached_tokens,
                "sweep": None
                if found.sweep is None
                else dataclasses.asdict(found.sweep),
                "warnings": [*model.notes(), *found.warnings],
            },
        )

    def _rows(self) -> list[dict[str, Any]]:
        run, table = self.plan.run, self.table
        return text_rows(
            texts=run.texts,
            roles=run.roles,
            sources=run.sources,
            clusters=run.clusters,
            n_tokens=self.n_tokens,
            left_out=self.plan.left_out,
            scores=dict(zip(table.names, table.values.T, strict=True)),
            p_values=self.judged.p_values,
            p_adjusted=self.judged.p_adjusted,
            reference=table.reference,
        )


def membership(
    model: OpenModel,
    texts: Source | None = None,
    *,
    members: Source | None = None,
    nonmembers: Source | None = None,
    label_field: str | None = None,
    document_field: str | None = None,
    scores: Sequence[str] = (AUTO,),
    primary: str | None = None,
    k: float = 20.0,
    sweep_k: bool = False,
    reference: OpenModel | None = None,
    corpus_counts: np.ndarray | None = None,
    neighbours: Callable[[str, int, int], list[str]] = edited,
    n_neighbours: int = 10,
    shots: int = 5,
    fprs: Sequence[float] = (0.05, 0.01),
    convention: Literal["le", "lt"] = "le",
    seed: int = 0,
    store: Path | None = None,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> MembershipAnalysis:
    """Score texts, and judge the scores against what is known of the texts.

    With labels, or members and non-members, every score gets an AUC, rates and a
    p-value beside blind baselines; with non-members alone every text gets a conformal
    p-value, and the set a verdict. Scores are rankings: none is a proof.

    Args:
        model: What is asked.
        texts: In question, or a file with labels: strings, a path, or an hf: name.
        members: Known to have been seen, in place of `texts`.
        nonmembers: Cannot have been seen; of the same kind.
        label_field: Field of 1 for members and 0 for others (default: known names).
        document_field: Field that names the document a text was cut from.
        scores: Names of METHODS, or auto (one pass or two), or all.
        primary: The score that decides (default: min_k); choose it beforehand.
        k: Percentage of least likely tokens that the Min-K% family keeps.
        sweep_k: Also choose k on a random half, judged on the other.
        reference: A model that saw neither side; without one at most `suspected`.
        corpus_counts: (V,) int64 token counts of a corpus, for `dc_pdd`.
        neighbours: (text, n, seed) -> n texts that are nearly the same.
        n_neighbours: Neighbours of each text for `neighbourhood`.
        shots: Known texts in front of each, for `recall` and `con_recall`.
        fprs: False-positive rates of the operating points.
        convention: Whether a rate may be reached (`le`) or must stay below (`lt`).
        seed: Of neighbours, prefixes, folds, permutations and resamples.
        store: Folder in which scores are kept; None keeps none.
        batch_tokens: Tokens of a batch on one device; None chooses by platform.
        progress: Told of target tokens done and in all.

    Raises:
        InputError: If texts or scores cannot be had, or too few texts have a score.

    Source:
        Shi et al. 2023, arXiv:2310.16789, for Min-K% and the protocol; each score's
        own source stands in METHODS.
    """
    run = read_texts(
        texts,
        members=members,
        nonmembers=nonmembers,
        label_field=label_field,
        document_field=document_field,
    )
    inputs = Inputs(
        reference=None
        if reference is None
        else text_model_of(reference, store=store, batch_tokens=batch_tokens),
        corpus_counts=corpus_counts,
        neighbours=neighbours,
        n_neighbours=n_neighbours,
    )
    available = set(WEIGHTS) if model.checkpoint is not None else set()
    available |= {"moments"} if model.has_moments else set()
    available |= {"reference"} if reference is not None else set()
    available |= {"corpus"} if corpus_counts is not None else set()
    check_sides(run, np.zeros(len(run.texts), bool))
    chosen = choose(
        run,
        scores,
        available,
        primary=primary,
        k=k,
        sweep_k=sweep_k,
        n_shots=shots,
        seed=seed,
    )
    ready = text_model_of(model, store=store, batch_tokens=batch_tokens)
    return score_and_judge(
        plan_membership(run, chosen, ready, inputs, seed=seed),
        fprs=fprs,
        convention=convention,
        progress=progress,
    )


def score_and_judge(
    plan: MembershipPlan,
    *,
    fprs: Sequence[float],
    convention: Literal["le", "lt"],
    progress: Progress | None = None,
) -> MembershipAnalysis:
    """Score the texts of a plan and judge the scores.

    Args:
        plan: What to score.
        fprs: False-positive rates.
        convention: See `tpr_at_fpr`.
        progress: Told of target tokens done and in all.

    Raises:
        InputError: If a score is not finite (names the text), or no non-member has a
            token.
    """
    started, clock = utc_now(), time.monotonic()
    run, scored_N = plan.run, ~plan.left_out
    try:
        table = score_texts(
            plan.texts,
            plan.chosen.methods,
            plan.model,
            inputs=plan.inputs,
            seed=plan.seed,
            progress=progress,
        )
    except NonFiniteScoreError as e:
        i = int(np.flatnonzero(scored_N)[e.sequence])
        raise InputError(
            f"{run.sources[i]}: text {run.number_of(i)}: a score is not finite",
            hint="check the checkpoint: its weights may hold NaN or be truncated",
        ) from e
    n_tokens_N = np.zeros(len(run.texts), np.int64)
    n_tokens_N[scored_N] = table.n_tokens
    pool_N = run.with_role(NONMEMBER) & scored_N
    if pool_N.any() and not n_tokens_N[pool_N].any():
        name = run.sources[int(np.flatnonzero(pool_N)[0])]
        raise InputError(
            f"{name}: no non-member has a token to score",
            hint="give texts that are not empty",
        )
    whole = Table(table.names, table.values, table.reference).among(scored_N)
    found = judged(
        run,
        whole,
        plan.left_out,
        primary=plan.chosen.primary,
        fprs=tuple(fprs),
        convention=convention,
        seed=plan.seed,
    )
    return MembershipAnalysis(
        plan=plan,
        table=whole,
        judged=dataclasses.replace(found, warnings=plan.chosen.notes + found.warnings),
        fprs=tuple(fprs),
        convention=convention,
        n_tokens=n_tokens_N,
        tokens_scored=table.tokens_scored,
        cached_tokens=table.n_cached,
        started=started,
        wall_seconds=time.monotonic() - clock,
    )
