"""What the scores of a run say: from texts and scores alone, without a model.

`membership` calls it once scores exist, `verify` with what `texts.jsonl` holds.

Dimension key
    N  texts of a run
    M  scores
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from jaxcontam.analyses.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.score import Scores
from jaxcontam.methods.membership.sweep import sweep_methods, sweep_min_k
from jaxcontam.report.archive import REFERENCE, reference_column, score_columns
from jaxcontam.results.membership import (
    BlindBaseline,
    MembershipStudy,
    ScorePicture,
    ScoreResult,
    SetResult,
    Sweep,
    TextScores,
    TextThreshold,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedRun:
    """What the scores of a run say.

    Attributes:
        results: One a score where both sides are known; one for the set where texts are
            in question; none where nothing is known of any text.
        blind: Baselines that read the texts alone.
        thresholds: Scores above which a text in question counts as a member.
        p_values: (N,) conformal p-values of the primary score for the texts in
            question, NaN elsewhere; or None.
        p_adjusted: (N,) the same after Benjamini and Hochberg.
        warnings: What the reader should know of the run as a whole.
        pictures: Curves of the scores where both sides are known.
        sweep: Share of tokens chosen on a half of the texts; None where the table
            does not hold Min-K% at every share of the sweep.
    """

    results: tuple[ScoreResult | SetResult, ...] = ()
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()
    p_values: np.ndarray | None = None
    p_adjusted: np.ndarray | None = None
    warnings: tuple[str, ...] = ()
    pictures: tuple[ScorePicture, ...] = ()
    sweep: Sweep | None = None


def judged(
    run: RunTexts,
    table: Scores,
    left_out_N: np.ndarray,
    *,
    primary: str,
    fprs: tuple[float, ...],
    convention: Literal["le", "lt"],
    seed: int,
) -> JudgedRun:
    """Rank members against non-members, or ask of texts in question.

    Args:
        run: N texts and what is known of each.
        table: Their M scores.
        left_out_N: Texts that stand in a prefix and take part in nothing.
        primary: The score that decides.
        fprs: False-positive rates of operating points and thresholds.
        convention: See `tpr_at_fpr`.
        seed: Seeds folds, permutations and resamples.

    Raises:
        InputError: If too few texts have a score.
    """
    members, nonmembers, asked = (
        run.with_role(role) & ~left_out_N for role in (MEMBER, NONMEMBER, TEXT)
    )
    found = JudgedRun()
    if members.any() and nonmembers.any():
        found = _ranked(
            run,
            table,
            members | nonmembers,
            primary=primary,
            fprs=fprs,
            convention=convention,
            seed=seed,
        )
    if asked.any() and nonmembers.any():
        found = _asked(run, table, asked, nonmembers, found, primary, fprs, seed)
    return dataclasses.replace(
        found, warnings=run.warnings + _warnings(run) + found.warnings
    )


def judged_again(
    study: MembershipStudy, rows: Sequence[TextScores], *, seed: int
) -> tuple[RunTexts, JudgedRun]:
    """What the rows of `texts.jsonl` say under the settings of their report.

    Raises:
        InputError: If too few texts have a score.
    """
    clusters = [row.cluster for row in rows if row.cluster is not None]
    run = RunTexts(
        name=study.name,
        texts=tuple(row.text for row in rows),
        roles=tuple(row.role for row in rows),
        clusters=tuple(clusters) or None,
        sources=tuple(row.source for row in rows),
    )
    again = judged(
        run,
        table_from_rows(rows),
        np.array([row.left_out for row in rows]),
        primary=study.primary,
        fprs=study.fprs,
        convention=study.convention,
        seed=seed,
    )
    return run, again


def rows_of(
    run: RunTexts,
    table: Scores,
    *,
    n_tokens: np.ndarray,
    left_out: np.ndarray,
    p_values: np.ndarray | None = None,
    p_adjusted: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """A row of `texts.jsonl` for each text, in their order; null where it has no score.

    Args:
        run: N texts.
        table: Their scores.
        n_tokens: (N,) scored tokens.
        left_out: (N,) bool, texts of a prefix, which take part in no comparison.
        p_values: See `JudgedRun`.
        p_adjusted: See `JudgedRun`.
    """
    rows = []
    for i, text in enumerate(run.texts):
        scores = zip(table.names, map(_number, table.values[i]), strict=True)
        row: dict[str, Any] = {
            "id": i,
            "source": run.sources[i],
            "role": run.roles[i],
            "text": text,
            "n_tokens": int(n_tokens[i]),
            "left_out": bool(left_out[i]),
            "scores": dict(scores),
        }
        if run.clusters is not None:
            row["cluster"] = run.clusters[i]
        if table.reference is not None:
            row[REFERENCE] = [_number(value) for value in table.reference[i]]
        if p_values is not None and p_adjusted is not None:
            row["p_value"] = _number(p_values[i])
            row["p_adjusted"] = _number(p_adjusted[i])
        rows.append(row)
    return rows


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def table_from_rows(rows: Sequence[TextScores]) -> Scores:
    """The scores that `texts.jsonl` holds."""
    columns = score_columns(rows)
    values = np.stack(list(columns.values()), axis=1)
    return Scores(tuple(columns), values, reference_column(rows))


def _ranked(
    run: RunTexts,
    table: Scores,
    chosen_N: np.ndarray,
    *,
    primary: str,
    fprs: tuple[float, ...],
    convention: Literal["le", "lt"],
    seed: int,
) -> JudgedRun:
    from jaxcontam.methods.membership.blind import blind_baselines
    from jaxcontam.methods.membership.documents import independent_codes
    from jaxcontam.methods.membership.judging import judge, score_pictures

    labels = run.with_role(MEMBER)[chosen_N]
    clusters = run.clusters_of(chosen_N)
    texts = run.texts_of(chosen_N)
    scores = table.rows(chosen_N)
    blind = blind_baselines(
        texts, labels, clusters=clusters, reference_N2=scores.reference, seed=seed
    )
    codes = independent_codes(texts, clusters)
    results = judge(
        run.name,
        run.fingerprint,
        scores,
        labels,
        texts=texts,
        clusters=clusters,
        blind=blind,
        primary=primary,
        fprs=fprs,
        convention=convention,
        seed=seed,
    )
    return JudgedRun(
        results=tuple(results),
        blind=blind.rows,
        pictures=score_pictures(scores, labels),
        sweep=_swept(scores, labels, codes, seed),
    )


def _swept(
    table: Scores, labels: np.ndarray, clusters: np.ndarray | None, seed: int
) -> Sweep | None:
    names = [method.name for method in sweep_methods()]
    if not set(names) <= set(table.names):
        return None
    columns = [table.names.index(name) for name in names]
    try:
        return sweep_min_k(
            names, table.values[:, columns], labels, seed=seed, clusters=clusters
        )
    except ValueError as e:
        raise InputError(
            f"--sweep-k: {e}", hint="give more texts, or leave it out"
        ) from e


def _asked(
    run: RunTexts,
    table: Scores,
    asked_N: np.ndarray,
    pool_N: np.ndarray,
    found: JudgedRun,
    primary: str,
    fprs: tuple[float, ...],
    seed: int,
) -> JudgedRun:
    from jaxcontam.methods.membership.pool_judging import judge_texts

    suspected, pool = table.rows(asked_N), table.rows(pool_N)
    judgement = judge_texts(
        run.name,
        run.fingerprint,
        suspected,
        pool,
        texts=run.texts_of(asked_N),
        pool_texts=run.texts_of(pool_N),
        clusters=run.clusters_of(asked_N),
        pool_clusters=run.clusters_of(pool_N),
        fprs=fprs,
        seed=seed,
    )
    column = judgement.names.index(primary)
    p_N, adjusted_N = np.full((2, len(run.texts)), np.nan)
    p_N[asked_N] = judgement.p_values[:, column]
    adjusted_N[asked_N] = judgement.adjusted[:, column]
    thresholds = tuple(row for row in judgement.thresholds if row.method == primary)
    if found.results:
        # Labelled texts decide; the others get a p-value each, and no second verdict.
        return dataclasses.replace(
            found,
            thresholds=thresholds,
            p_values=p_N,
            p_adjusted=adjusted_N,
            warnings=found.warnings + judgement.warnings,
        )
    results = () if judgement.set_result is None else (judgement.set_result,)
    return JudgedRun(
        results=results,
        blind=judgement.blind.rows,
        thresholds=thresholds,
        p_values=p_N,
        p_adjusted=adjusted_N,
        warnings=judgement.warnings,
    )


def _warnings(run: RunTexts) -> tuple[str, ...]:
    n = run.n_on_both_sides
    if not n:
        return ()
    return (
        f"{n} distinct {'text is' if n == 1 else 'texts are'} among the members and "
        "among the non-members, which pulls every AUC towards 0.5",
    )
