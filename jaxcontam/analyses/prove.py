"""A test of any matrix of scores, and an order test of any engine."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.analyses.audit import AuditResult, audit
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.arguments import check_min_effect, public
from jaxcontam.errors import InputError
from jaxcontam.results import Evidence, OrderResult
from jaxcontam.results.order import MATRIX
from jaxcontam.stats.randomisation import (
    LARGEST,
    MATRIX_TOLERANCE,
    ScoreKind,
    randomisation_test,
)
from jaxcontam.verdict import MIN_EFFECT, decide


@public
def prove(
    matrix: Any,
    *,
    boundaries: float | Sequence[float] | np.ndarray | None = None,
    scores: ScoreKind = "centred",
    min_effect: float = MIN_EFFECT,
    seed: int = 0,
    name: str = "matrix",
    command: Sequence[str] = ("prove",),
) -> AuditResult:
    """Test whether column 0 of a matrix scores higher than chance allows.

    The null hypothesis is that the columns of each row are exchangeable: had the model
    never seen the published version, each would have been equally likely to be it.

    Args:
        matrix: (K, m + 1) numbers: rows are strata, column 0 the published version.
        boundaries: Boundaries of a row, one number or K, for an effect in nats each.
        scores: How rows become scores.
        min_effect: Effect that `no evidence` must have been able to find.
        seed: Seeds the Monte Carlo cross-check.
        name: What reports call the matrix.
        command: The command line that made it.

    Raises:
        InputError: If the matrix is none, or a cell is no finite number.

    Source:
        See `jaxcontam.stats.randomisation.randomisation_test`.
    """
    watch = Stopwatch()
    check_min_effect(min_effect)
    matrix_KM = np.asarray(matrix, np.float64)
    if matrix_KM.ndim != 2 or len(matrix_KM) == 0 or matrix_KM.shape[1] < 2:
        raise InputError(
            f"{name}: shape {matrix_KM.shape}, expected (K, m + 1)",
            hint="a row a stratum, the published version first",
        )
    check_cells(matrix_KM, name)
    boundaries_K = np.ones(len(matrix_KM))
    if boundaries is not None:
        values = np.atleast_1d(np.asarray(boundaries, np.float64))
        boundaries_K = check_boundaries(values, len(matrix_KM), f"{name}: boundaries")
    digest = f"sha256:{hashlib.sha256(matrix_KM.tobytes()).hexdigest()}"
    result = OrderResult(
        benchmark=name,
        fingerprint=digest,
        content_digest=digest,
        order_provenance="declared",
        n_examples=0,
        method=MATRIX,
        primary=True,
        null="exchangeability (declared)",
        validity="exact",
        n_strata=len(matrix_KM),
        n_orders=matrix_KM.shape[1] - 1,
        numbers=randomisation_test(
            matrix_KM,
            boundaries_K,
            scores=scores,
            relative_tolerance=MATRIX_TOLERANCE,
            seed=seed,
        ),
        effect_unit="score units"
        if boundaries is None
        else "nats per example boundary",
    )
    decided = decide([result], min_effect=min_effect)
    report = watch.report(command, seed, decided, min_effect=min_effect)
    return AuditResult(report, (Evidence(scores=matrix_KM, boundaries=boundaries_K),))


@public
def order_test(
    log_likelihoods: Any,
    texts: Sequence[str],
    *,
    test: str = "direction",
    seed: int = 0,
) -> OrderResult:
    """Run one order test with any engine.

    Args:
        log_likelihoods: Takes (context, continuation) strings, returns log
            p(continuation | context) of each in nats; or any other model.
        texts: Examples in published order.
        test: A row of METHODS; see there for its null hypothesis.
        seed: Seeds every random choice.

    Returns:
        The test, also where the texts' own order fails its checks: its verdict then
        says `invalid design`.

    Raises:
        InputError: If the model or the texts cannot be used.
    """
    result = audit(log_likelihoods, texts, tests=test, seed=seed, score_anyway=True)
    return result[test]


def check_cells(matrix_KM: np.ndarray, name: str) -> None:
    """Refuse cells that no log-likelihood can be.

    Raises:
        InputError: Names row and column, counted from 1.
    """
    bad = np.argwhere(~(np.abs(matrix_KM) <= LARGEST))
    if len(bad):
        row, column = bad[0]
        value = matrix_KM[row, column]
        fault = "too large" if np.isfinite(value) else "not a finite number"
        raise InputError(
            f"{name}: row {row + 1}, column {column + 1}: {value} is {fault}"
        )


def check_boundaries(values_K: np.ndarray, n_rows: int, name: str) -> np.ndarray:
    """A positive number per row, from one number or from as many.

    Raises:
        InputError: If there is not one for each, or one is too small to divide by.
    """
    if values_K.ndim != 1 or len(values_K) not in (1, n_rows):
        raise InputError(f"{name}: {values_K.size} numbers for {n_rows} rows")
    if not (np.isfinite(values_K).all() and (values_K > 0).all()):
        raise InputError(f"{name}: must be positive")
    if values_K.min() < 1e-9:
        raise InputError(f"{name}: smaller than 1e-9")
    return np.broadcast_to(values_K, n_rows).astype(np.float64)
