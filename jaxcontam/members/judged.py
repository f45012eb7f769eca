"""Judge the scores of a run, from texts and scores alone, without a model.

`membership` calls it once scores exist, `verify` with what `texts.jsonl` holds.

Dimension key
    N  texts of a run
    M  scores
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.members.result import (
    BlindBaseline,
    CodecShare,
    MembershipStudy,
    ScorePicture,
    ScoreResult,
    SetResult,
    Sweep,
    TextScores,
    TextThreshold,
    score_columns,
)
from jaxcontam.members.score import Scores
from jaxcontam.members.sweep import sweep_methods, sweep_min_k
from jaxcontam.reports.archive import number_or_none


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedRun:
    """Judgement of the scores of a run.

    Attributes:
        results: One a score where both sides are known; one for the set where texts are
            in question; none where nothing is known of any text.
        p_values: (N,) conformal p-values of the primary score for the texts in
            question, NaN elsewhere; or None.
        p_adjusted: (N,) the same after Benjamini and Hochberg.
        no_p_value: (N,) why a text in question has none; or None.
        study: What was asked, with `sweep`, `seen`, `codec` and `documents` as found.
    """

    study: MembershipStudy
    results: tuple[ScoreResult | SetResult, ...] = ()
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()
    p_values: np.ndarray | None = None
    p_adjusted: np.ndarray | None = None
    no_p_value: tuple[str | None, ...] | None = None
    warnings: tuple[str, ...] = ()
    pictures: tuple[ScorePicture, ...] = ()


def judged(
    run: RunTexts,
    table: Scores,
    left_out_N: np.ndarray,
    study: MembershipStudy,
    *,
    seed: int,
) -> JudgedRun:
    """Rank members against non-members, or ask of texts in question.

    What `study` says is found is not read; `left_out_N` takes part in nothing.
    """
    members, nonmembers, asked = (
        run.with_role(role) & ~left_out_N for role in (MEMBER, NONMEMBER, TEXT)
    )
    study = dataclasses.replace(
        study,
        fingerprint=run.fingerprint,
        sweep=None,
        seen=None,
        codec=_codec_shares(run, table) if "codec" in table.names else (),
        documents=None,
    )
    found = JudgedRun(study=study)
    if members.any() and nonmembers.any():
        found = _ranked(run, table, members | nonmembers, asked, study, seed)
    if asked.any() and nonmembers.any():
        found = _asked(run, table, asked, nonmembers, found, seed)
    return dataclasses.replace(found, warnings=run.warnings + found.warnings)


def judged_again(
    study: MembershipStudy, rows: Sequence[TextScores], *, seed: int
) -> tuple[RunTexts, JudgedRun]:
    """Judge the rows of `texts.jsonl` under the settings of their report."""
    clusters = [row.cluster for row in rows if row.cluster is not None]
    run = RunTexts(
        name=study.name,
        texts=tuple(row.text for row in rows),
        roles=tuple(row.role for row in rows),
        clusters=tuple(clusters) or None,
        sources=tuple(row.source for row in rows),
    )
    left_out_N = np.array([row.left_out for row in rows])
    return run, judged(run, table_from_rows(rows), left_out_N, study, seed=seed)


def rows_of(
    run: RunTexts,
    table: Scores,
    *,
    n_tokens: np.ndarray,
    left_out: np.ndarray,
    found: JudgedRun,
) -> list[dict[str, Any]]:
    """A row of `texts.jsonl` for each text, in their order; null where it has no score.

    `n_tokens` (N,) are scored; `left_out` (N,) stand in a prefix; `found` gives texts
    in question their p-values.
    """
    rows = []
    for i, text in enumerate(run.texts):
        scores = zip(table.names, map(number_or_none, table.values[i]), strict=True)
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
            row["reference"] = list(map(number_or_none, table.reference[i]))
        for name in ("p_values", "p_adjusted"):
            if (values_N := getattr(found, name)) is not None:
                row[name.removesuffix("s")] = number_or_none(values_N[i])
        if found.no_p_value is not None:
            row["no_p_value"] = found.no_p_value[i]
        rows.append(row)
    return rows


def table_from_rows(rows: Sequence[TextScores]) -> Scores:
    """The scores that `texts.jsonl` holds."""
    columns = score_columns(rows)
    values = np.stack(list(columns.values()), axis=1)
    reference = None
    if rows[0].reference is not None:
        # None becomes NaN.
        reference = np.array([row.reference for row in rows], np.float64).reshape(-1, 2)
    return Scores(tuple(columns), values, reference)


def _ranked(
    run: RunTexts,
    table: Scores,
    chosen_N: np.ndarray,
    asked_N: np.ndarray,
    study: MembershipStudy,
    seed: int,
) -> JudgedRun:
    from jaxcontam.members.document_rates import document_rates
    from jaxcontam.members.judging import judge, score_pictures

    labels = run.with_role(MEMBER)[chosen_N]
    ranking = judge(
        run.name,
        run.fingerprint,
        table.rows(chosen_N),
        labels,
        texts=run.texts_of(chosen_N),
        clusters=run.clusters_of(chosen_N),
        primary=study.primary,
        fprs=study.fprs,
        convention=study.convention,
        seed=seed,
    )
    kept_N = chosen_N.copy()
    kept_N[chosen_N] = ranking.kept
    scores, labels = table.rows(kept_N), run.with_role(MEMBER)[kept_N]
    swept = _swept(scores, labels, run.clusters_of(kept_N), seed)
    rates = None
    if run.clusters is not None:
        primary_N = table.values[:, table.names.index(study.primary)]
        rates = document_rates(
            study.primary,
            primary_N,
            run.clusters,
            run.roles,
            known_N=kept_N,
            asked_N=asked_N,
        )
    return JudgedRun(
        results=ranking.results,
        blind=ranking.blind.rows,
        pictures=score_pictures(scores, labels),
        study=dataclasses.replace(study, sweep=swept, documents=rates),
    )


def _swept(
    table: Scores,
    labels: np.ndarray,
    clusters: Sequence[str] | None,
    seed: int,
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
            f"sweep_k: {e}", hint="give more texts, or leave it out"
        ) from e


def _asked(
    run: RunTexts,
    table: Scores,
    asked_N: np.ndarray,
    pool_N: np.ndarray,
    found: JudgedRun,
    seed: int,
) -> JudgedRun:
    from jaxcontam.members.pool_judging import judge_texts

    study = found.study
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
        primary=study.primary,
        fprs=study.fprs,
        seed=seed,
    )
    column = judgement.names.index(study.primary)
    p_N, adjusted_N = np.full((2, len(run.texts)), np.nan)
    p_N[asked_N] = judgement.p_values[:, column]
    adjusted_N[asked_N] = judgement.adjusted[:, column]
    why: dict[int, str | None] = dict(
        zip(np.flatnonzero(asked_N).tolist(), judgement.why, strict=True)
    )
    if not found.results:
        # Else labelled texts decide, and there is no second verdict.
        results = () if judgement.set_result is None else (judgement.set_result,)
        found = JudgedRun(study=study, results=results, blind=judgement.blind.rows)
    rows = judgement.thresholds
    return dataclasses.replace(
        found,
        study=dataclasses.replace(study, seen=judgement.seen),
        thresholds=tuple(row for row in rows if row.method == study.primary),
        p_values=p_N,
        p_adjusted=adjusted_N,
        no_p_value=tuple(why.get(i) for i in range(len(run.texts))),
        warnings=found.warnings + judgement.warnings,
    )


def _codec_shares(run: RunTexts, table: Scores) -> tuple[CodecShare, ...]:
    from jaxcontam.stats.proportions import wilson_interval

    column = table.values[:, table.names.index("codec")].tolist()
    found = []
    for role in dict.fromkeys(run.roles):
        rows = zip(run.texts, run.roles, column, strict=True)
        own = {text: value for text, one, value in rows if one == role}
        scored = [value for value in own.values() if np.isfinite(value)]
        if n := len(scored):
            n_lowered = sum(value > 0 for value in scored)
            low, high = wilson_interval(n_lowered, n)
            found.append(
                CodecShare(
                    role=role, n_texts=n, share=n_lowered / n, low=low, high=high
                )
            )
    return tuple(found)
