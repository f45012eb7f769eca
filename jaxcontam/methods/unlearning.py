"""Unlearning: which texts a model still knows that was tuned to forget them.

The screen compares each text's score before and after; samples of the texts that score
alike are then compared with the truth, beside a control of texts that do not.

Dimension key
    N  texts
    A  texts of one arm
    K  samples of a text
    R  resamples
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.results.unlearning import ScreenResult, SimilarityResult
from jaxcontam.stats.bootstrap import BootstrapResult, bootstrap
from jaxcontam.stats.proportions import wilson_interval

BOUND = 1.15
"""Ratios between 1 / 1.15 and 1.15 are suspicious, as in Shi et al. 2023, section 7."""

_N_BOOT = 2000
# Fewer texts than this say little of how much texts vary.
_FEW_TEXTS = 10
_NEVER_KNOWN = (
    "a text that the original model never knew scores alike as well: look at what the "
    "unlearned model writes"
)


def score_ratios(original_N: np.ndarray, unlearned_N: np.ndarray) -> np.ndarray:
    """Score after unlearning over score before.

    A model that forgot a text gives it less probability, so the ratio of two mean
    log-probabilities is above 1 for it; near 1, the two models treat the text alike.

    Args:
        original_N: (N,) mean log-probabilities, nats, at most 0; NaN without a score.
        unlearned_N: Likewise.

    Returns:
        `ratio_N`, at least 0: 1 where both are 0 (both models are certain), inf where
        the original model alone is, NaN where there is no score.

    Raises:
        ValueError: If the shapes differ or a score is above 0.

    Source:
        Shi et al., arXiv:2310.16789, section 7.2.1, which does not say which model is
        the numerator; the interval is the same either way.
    """
    if original_N.shape != unlearned_N.shape:
        raise ValueError(
            f"unlearned must have shape {original_N.shape}, got {unlearned_N.shape}"
        )
    if (original_N > 0).any() or (unlearned_N > 0).any():
        raise ValueError("scores must be mean log-probabilities, at most 0")
    ratio_N = np.full(original_N.shape, np.nan)
    scored_N = ~(np.isnan(original_N) | np.isnan(unlearned_N))
    ratio_N[scored_N & (unlearned_N == 0) & (original_N == 0)] = 1.0
    ratio_N[scored_N & (unlearned_N < 0) & (original_N == 0)] = np.inf
    usual_N = scored_N & (original_N < 0)
    ratio_N[usual_N] = unlearned_N[usual_N] / original_N[usual_N]
    return ratio_N


def perplexity_ratios(original_N: np.ndarray, unlearned_N: np.ndarray) -> np.ndarray:
    """Perplexity after unlearning over perplexity before.

    Args:
        original_N: (N,) mean log-probability a token, nats; NaN without a score.
        unlearned_N: Likewise.

    Returns:
        `ratio_N`, above 1 where the text became less likely.
    """
    # Perplexities of e^1000 have no float; their ratio may.
    return np.exp(np.minimum(original_N - unlearned_N, 700.0))


def is_suspicious(ratio_N: np.ndarray, bound: float = BOUND) -> np.ndarray:
    """Texts whose ratio lies strictly between 1 / bound and bound; never one of NaN.

    Raises:
        ValueError: If the bound is not above 1.
    """
    if not bound > 1:
        raise ValueError(f"bound must be above 1, got {bound}")
    return (ratio_N > 1 / bound) & (ratio_N < bound)


def screen_result(
    ratio_N: np.ndarray,
    *,
    name: str,
    fingerprint: str,
    task: str,
    method: str,
    setting: str,
    primary: bool,
    bound: float,
) -> ScreenResult:
    """Count the suspicious texts of a screen.

    Args:
        ratio_N: (N,) NaN for texts without a score; at least one has one.
        name: Name of the file.
        fingerprint: Digest of the texts.
        task: What the texts are.
        method: Name of the score.
        setting: Its parameter, or "".
        primary: Whether its suspicious texts are looked at closer.
        bound: See `is_suspicious`.

    Raises:
        ValueError: If no text has a score.
    """
    scored = ratio_N[~np.isnan(ratio_N)]
    if len(scored) == 0:
        raise ValueError("at least one text must have a score")
    n_suspicious = int(is_suspicious(ratio_N, bound).sum())
    low, high = wilson_interval(n_suspicious, len(scored))
    median = float(np.median(scored))
    words = [_NEVER_KNOWN] * (n_suspicious > 0)
    if n_unscored := len(ratio_N) - len(scored):
        words.append(f"{task} without a score, which are left out: {n_unscored}")
    return ScreenResult(
        benchmark=name,
        fingerprint=fingerprint,
        task=task,
        method=method,
        setting=setting,
        primary=primary,
        n_texts=len(scored),
        n_unscored=n_unscored,
        bound=bound,
        n_suspicious=n_suspicious,
        share=n_suspicious / len(scored),
        share_low=low,
        share_high=high,
        ratio_median=median if math.isfinite(median) else None,
        warnings=tuple(words) if primary else (),
    )


def draw_arms(
    suspicious_N: np.ndarray, usable_N: np.ndarray, *, most: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Texts to sample from: suspicious ones, and others as a control.

    Args:
        suspicious_N: (N,) bool.
        usable_N: (N,) bool: texts that have a score and a truth to compare with.
        most: Most texts of an arm; more are sampled at random.
        seed: Seeds the draw.

    Returns:
        Indices of both arms, in order.
    """
    rng = np.random.default_rng(seed)
    arms = []
    for wanted_N in (suspicious_N & usable_N, ~suspicious_N & usable_N):
        indices = np.flatnonzero(wanted_N)
        if len(indices) > most:
            indices = np.sort(rng.choice(indices, most, replace=False))
        arms.append(indices)
    return arms[0], arms[1]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Similarities:
    """One measure of both arms' samples.

    Attributes:
        method: Name of the measure.
        selected_AK: (A, K) of the suspicious texts; NaN where the judge said nothing.
        unselected_AK: The same for the control.
        elsewhere_AK: The suspicious texts' samples against another text's truth; or
            None.
        n_refused: How many of the NaN stand for a request that was refused.
        refusal: What the server said of the first of them.
        note: What else a reader should know of the judge; "" is nothing.
    """

    method: str
    selected_AK: np.ndarray
    unselected_AK: np.ndarray
    elsewhere_AK: np.ndarray | None = None
    n_refused: int = 0
    refusal: str = ""
    note: str = ""


def similarity_result(
    found: Similarities,
    *,
    name: str,
    fingerprint: str,
    task: str,
    primary: bool,
    n_samples: int,
    seed: int,
) -> SimilarityResult:
    """Means of both arms and their difference, each with an interval."""
    selected, unselected = _means(found.selected_AK), _means(found.unselected_AK)
    own, other = _interval(selected, seed), _interval(unselected, seed)
    gap = None
    if len(selected) and len(unselected):
        gap = bootstrap(_difference, selected, unselected, n_boot=_N_BOOT, seed=seed)
    lift = None
    if found.elsewhere_AK is not None and len(found.elsewhere_AK) > 1:
        lift = _interval(_means(found.selected_AK - found.elsewhere_AK), seed)
    n_unparsed = int(np.isnan(found.selected_AK).sum())
    n_unparsed += int(np.isnan(found.unselected_AK).sum()) - found.n_refused
    seen = found.selected_AK[~np.isnan(found.selected_AK)]
    return SimilarityResult(
        benchmark=name,
        fingerprint=fingerprint,
        task=task,
        method=found.method,
        primary=primary,
        n_selected=len(found.selected_AK),
        n_unselected=len(found.unselected_AK),
        n_samples=n_samples,
        n_unparsed=n_unparsed,
        n_refused=found.n_refused,
        **_ends("selected", own),
        **_ends("unselected", other),
        **_ends("difference", gap),
        **_ends("above_elsewhere", lift),
        best=float(seen.max()) if len(seen) else None,
        warnings=tuple(_warnings(found, len(selected), len(unselected), n_unparsed)),
    )


def _means(values_AK: np.ndarray) -> np.ndarray:
    """Mean over the samples of each text; texts without a value are left out."""
    known_AK = ~np.isnan(values_AK)
    counts_A = known_AK.sum(axis=1)
    sums_A = values_AK.sum(axis=1, where=known_AK)
    return sums_A[counts_A > 0] / counts_A[counts_A > 0]


def _interval(values_A: np.ndarray, seed: int) -> BootstrapResult | None:
    if len(values_A) == 0:
        return None
    # The second group counts nothing: the bootstrap is of two.
    return bootstrap(_first_mean, values_A, np.zeros(1), n_boot=_N_BOOT, seed=seed)


def _difference(a_RA: np.ndarray, b_RA: np.ndarray) -> np.ndarray:
    return a_RA.mean(axis=1) - b_RA.mean(axis=1)


def _first_mean(a_RA: np.ndarray, _: np.ndarray) -> np.ndarray:
    return a_RA.mean(axis=1)


def _ends(name: str, result: BootstrapResult | None) -> dict[str, Any]:
    """Fields of an estimate and its interval; None without one."""
    keys = name, f"{name}_low", f"{name}_high"
    values = (
        (None,) * 3 if result is None else (result.statistic, result.low, result.high)
    )
    return dict(zip(keys, values, strict=True))


def _warnings(
    found: Similarities, n_selected: int, n_unselected: int, n_unparsed: int
) -> Sequence[str]:
    words = []
    for n, kind in ((n_selected, "suspicious"), (n_unselected, "other")):
        if n == 0:
            words.append(f"no {kind} text to sample from: there is nothing to compare")
        elif n < _FEW_TEXTS:
            words.append(
                f"{n} {kind} text{'s' * (n > 1)}: the interval is that of few texts "
                "and may be too narrow"
            )
    if n_unparsed:
        words.append(
            f"answers of the judge that hold no number from 1 to 5: {n_unparsed}"
        )
    if found.n_refused:
        words.append(
            f"samples that the judge's server refused to read: {found.n_refused} "
            f"({found.refusal})"
        )
    if found.note:
        words.append(found.note)
    return words
