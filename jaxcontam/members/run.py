"""Which texts a model saw, by scores that are judged against known texts.

Read and plan (`known_texts`), score (here), judge (`membership_judging`).

Dimension key
    N  texts of a run
    M  scores
"""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jaxcontam.arguments import Dtype, public, store_folder
from jaxcontam.errors import InputError
from jaxcontam.members.judged import judged, rows_of
from jaxcontam.members.known_texts import (
    AUTO,
    WEIGHTS,
    MembershipPlan,
    Source,
    check_ranges,
    check_sides,
    choose,
    plan_membership,
    read_texts,
)
from jaxcontam.members.neighbours import edited
from jaxcontam.members.page import membership_page, study_of
from jaxcontam.members.plan import Inputs, score_texts
from jaxcontam.members.result import (
    BlindBaseline,
    MembershipStudy,
    ScorePicture,
    ScoreResult,
    SeenShare,
    SetResult,
    TextScores,
)
from jaxcontam.members.score import Scores
from jaxcontam.members.text_model import text_model
from jaxcontam.progress import Progress, default_bar
from jaxcontam.reports.archive import TEXTS_NAME, texts_bytes, typed_rows
from jaxcontam.reports.page import Page
from jaxcontam.reports.report import Report
from jaxcontam.reports.saved import Writable, write_files
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.scoring.load import load
from jaxcontam.scoring.run_batches import finite_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MembershipAnalysis(Writable):
    """A report of membership, with the scores that it rests on.

    Attributes:
        report: Everything that `report.json` holds.
        rows: One per text, as in `texts.jsonl`: its scores and p-values.
        table: (N, M) scores, NaN for texts without one; higher = member.
        pictures: Curves of the scores where both sides are known.
    """

    report: Report
    rows: tuple[dict[str, Any], ...]
    table: Scores
    pictures: tuple[ScorePicture, ...]

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {auc:.2f}" for name, auc in self.auc.items())
        words = f"{len(self.rows)} texts, {self.verdict or 'not judged'}"
        words += f"; AUC: {scores}" * bool(scores)
        return textwrap.fill(f"<MembershipAnalysis: {words}>", 80)

    @property
    def results(self) -> tuple[ScoreResult | SetResult, ...]:
        """One a score where both sides are known; one for a set in question."""
        kinds = ScoreResult, SetResult
        return tuple(row for row in self.report.results if isinstance(row, kinds))

    @property
    def auc(self) -> dict[str, float]:
        """Score -> probability that a member outscores a non-member."""
        return {row.method: row.auc for row in self.results}

    @property
    def blind(self) -> tuple[BlindBaseline, ...]:
        """How well the sides can be told apart without the model."""
        return self.report.blind

    @property
    def verdict(self) -> str | None:
        """Verdict of the score that decides; None where no side is known."""
        return next((row.verdict for row in self.results if row.primary), None)

    @property
    def seen(self) -> SeenShare | None:
        """Share of the texts in question that was seen; None without non-members."""
        return study_of(self.report).seen

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        return write_files(
            self.report, {TEXTS_NAME: texts_bytes(self.rows)}, out, self._page
        )

    def _page(self, report: Report) -> Page:
        texts = typed_rows(self.rows, TextScores)
        return membership_page(report, self.pictures, texts)

    def plot(self) -> "Figure":
        """AUC of every score and of every blind baseline, with 95 % intervals.

        Raises:
            ValueError: If no side is known.
        """
        from jaxcontam.members.plots import membership_figure

        return membership_figure(self.results, self.blind)


@public
def membership(
    model: Any,
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
    reference: Any = None,
    tokenizer: Any = None,
    corpus_counts: np.ndarray | None = None,
    neighbours: Callable[[str, int, int], list[str]] = edited,
    n_neighbours: int = 10,
    shots: int = 5,
    fprs: Sequence[float] = (0.05, 0.01),
    convention: Literal["le", "lt"] = "le",
    seed: int = 0,
    dtype: Dtype = "float32",
    batch_tokens: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> MembershipAnalysis:
    """Score texts, and judge the scores against what is known of the texts.

    With labels, or members and non-members, every score gets an AUC, rates and a
    p-value beside blind baselines; with non-members alone every text gets a conformal
    p-value, and the set a verdict. Scores are rankings: none is a proof.

    Args:
        model: A directory, hub name, `api:URL#NAME` or model in memory; see
            `jaxcontam.scoring.load.load`.
        texts: In question, or a file with labels: strings, a path, or an hf: name. A
            folder gives 100 snippets of 512 words of each of its .txt files.
        members: Known to have been seen; with `nonmembers`.
        nonmembers: Cannot have been seen; of the same kind.
        label_field: Field of 1 for members and 0 for others (default: known names).
        document_field: Field that names the document a text was cut from; beside known
            documents of both kinds each has a rate, in `report.study`.
        scores: Names of METHODS, or auto (one pass or two), or all.
        primary: The score that decides (default: min_k); choose it beforehand.
        k: Percentage of least likely tokens that the Min-K% family keeps.
        sweep_k: Also choose k on a random half, judged on the other.
        reference: A model that saw neither side; without one at most `may rank higher`.
        tokenizer: The fast tokenizer of a model in memory.
        corpus_counts: (V,) int64 token counts of a corpus, for `dc_pdd`.
        neighbours: (text, n, seed) -> n texts that are nearly the same.
        n_neighbours: Neighbours of each text for `neighbourhood`.
        shots: Known texts in front of each, for `recall` and `con_recall`.
        fprs: False-positive rates of the operating points.
        convention: Whether a rate may be reached (`le`) or must stay below (`lt`).
        seed: Seed of neighbours, prefixes, folds, permutations and resamples.
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        batch_tokens: Tokens of a batch on one device; None chooses by device.
        store: Folder in which scores are kept, so that another call resumes there;
            None keeps none.
        progress: Called with target tokens done and in all; None draws a bar where
            someone looks, in a terminal or a notebook.

    Raises:
        InputError: If texts or scores cannot be had, or too few texts have a score.

    Source:
        Shi et al. 2023, arXiv:2310.16789, for Min-K% and the protocol; each score's
        own source stands in METHODS.
    """
    watch = Stopwatch()
    check_ranges(k, fprs)
    for name, value in (("n_neighbours", n_neighbours), ("shots", shots)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    run = read_texts(
        texts,
        members=members,
        nonmembers=nonmembers,
        label_field=label_field,
        document_field=document_field,
        seed=seed,
    )
    check_sides(run, np.zeros(len(run.texts), bool))
    folder = store_folder(store)
    target = load(model, tokenizer=tokenizer, dtype=dtype)
    other = None
    if reference is not None:
        other = text_model(
            load(reference, tokenizer=tokenizer, dtype=dtype, beside=model),
            store=None if folder is None else folder / "reference",
            batch_tokens=batch_tokens,
        )
    chosen = choose(
        run,
        scores,
        {
            *(WEIGHTS if target.checkpoint is not None else ()),
            *(("moments",) if target.has_moments else ()),
            *(("reference",) if other is not None else ()),
            *(("corpus",) if corpus_counts is not None else ()),
        },
        primary=primary,
        k=k,
        sweep_k=sweep_k,
        n_shots=shots,
        seed=seed,
    )
    plan = plan_membership(
        run,
        chosen,
        text_model(target, store=folder, batch_tokens=batch_tokens),
        Inputs(
            reference=other,
            corpus_counts=corpus_counts,
            neighbours=neighbours,
            n_neighbours=n_neighbours,
        ),
        seed=seed,
    )
    with default_bar(progress, "scoring texts") as told:
        return score_and_judge(
            plan,
            fprs=fprs,
            convention=convention,
            command=("membership", target.info.name, run.name),
            watch=watch,
            progress=told,
        )


def score_and_judge(
    plan: MembershipPlan,
    *,
    fprs: Sequence[float],
    convention: Literal["le", "lt"] = "le",
    command: Sequence[str],
    watch: Stopwatch,
    progress: Progress | None = None,
) -> MembershipAnalysis:
    """Score the texts of a plan and judge the scores."""
    run, scored_N = plan.run, ~plan.left_out

    def place(n: int) -> str:
        i = int(np.flatnonzero(scored_N)[n])
        number = 1 + run.sources[:i].count(run.sources[i])
        return f"{run.sources[i]}: text {number}: a score"

    with finite_scores(place):
        table = score_texts(
            plan.texts,
            plan.chosen.methods,
            plan.model,
            inputs=plan.inputs,
            seed=plan.seed,
            progress=progress,
        )
    n_tokens_N = np.zeros(len(run.texts), np.int64)
    n_tokens_N[scored_N] = table.n_tokens
    whole = table.among(scored_N)
    study = MembershipStudy(
        name=run.name,
        fingerprint=run.fingerprint,
        primary=plan.chosen.primary,
        fprs=tuple(fprs),
        convention=convention,
        n_texts=len(run.texts),
        n_left_out=int(plan.left_out.sum()),
        n_unscored=int((n_tokens_N[scored_N] == 0).sum()),
        tokens_scored=table.tokens_scored,
        cached_tokens=table.n_cached,
    )
    found = judged(run, whole, plan.left_out, study, seed=plan.seed)
    model = plan.model.model
    warnings = (*model.notes(), *plan.chosen.notes, *found.warnings)
    study = dataclasses.replace(found.study, warnings=warnings)
    settings = {method.name: method.setting for method in plan.chosen.methods}
    report = watch.report(
        command,
        plan.seed,
        (
            dataclasses.replace(row, setting=settings.get(row.method, ""))
            if isinstance(row, ScoreResult)
            else row
            for row in found.results
        ),
        model=model.info,
        device=model.device,
        blind=found.blind,
        thresholds=found.thresholds,
        study=dataclasses.asdict(study),
    )
    rows = rows_of(
        run,
        whole,
        n_tokens=n_tokens_N,
        left_out=plan.left_out,
        found=found,
    )
    return MembershipAnalysis(
        report=report, rows=tuple(rows), table=whole, pictures=found.pictures
    )
