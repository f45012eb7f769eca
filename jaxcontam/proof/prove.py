"""A test of any matrix of scores, and an order test of any engine."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.arguments import check_min_effect, public
from jaxcontam.errors import InputError, first_line
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.publish import AuditResult
from jaxcontam.proof.result import MATRIX, Evidence, OrderResult
from jaxcontam.proof.verdict import decide
from jaxcontam.reports.report import Stopwatch
from jaxcontam.stats.randomisation import (
    LARGEST,
    MATRIX_TOLERANCE,
    ScoreKind,
    randomisation_test,
)


@public
def prove(
    matrix: Any,
    *,
    boundaries: float | Sequence[float] | np.ndarray | None = None,
    statistic: ScoreKind = "centred",
    min_effect: float = MIN_EFFECT,
    seed: int = 0,
    name: str = "matrix",
    command: Sequence[str] = ("prove",),
) -> AuditResult:
    """Test whether column 0 of a matrix scores higher than chance allows.

    The null hypothesis is that the columns of each row are exchangeable: had the model
    never seen the published version, each would have been equally likely to be it.

    Args:
        matrix: (K, m + 1) numbers: rows are strata, column 0 the published version. Of
            a data frame the values count, without its index and names.
        boundaries: Boundaries of a row, one number or K, for an effect in nats each.
        statistic: How rows become scores.
        min_effect: Effect that `no evidence` must have been able to find.
        seed: Seeds the Monte Carlo cross-check.
        name: What reports call the matrix.
        command: The command line that made it.

    Raises:
        InputError: If the matrix is none, a cell is masked or no finite number, or the
            first row or column of a data frame looks like labels.

    Source:
        See `jaxcontam.stats.randomisation.randomisation_test`.
    """
    watch = Stopwatch()
    check_min_effect(min_effect)
    matrix_KM = real_numbers(matrix, name)
    if matrix_KM.ndim != 2 or len(matrix_KM) == 0 or matrix_KM.shape[1] < 2:
        raise InputError(
            f"{name}: shape {matrix_KM.shape}, expected (K, m + 1)",
            hint="one row per stratum, the published version first",
        )
    check_cells(matrix_KM, name)
    if hasattr(matrix, "columns"):
        check_labels(matrix_KM, name, hint="give the scores alone, as an array")
    boundaries_K = np.ones(len(matrix_KM))
    if boundaries is not None:
        label = f"{name}: boundaries"
        values = np.atleast_1d(real_numbers(boundaries, label))
        boundaries_K = check_boundaries(values, len(matrix_KM), label)
    digest = (
        f"sha256:{hashlib.sha256(np.ascontiguousarray(matrix_KM).data).hexdigest()}"
    )
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
            scores=statistic,
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


def real_numbers(values: Any, name: str) -> np.ndarray:
    """Values as float64, whatever holds them."""
    try:
        masked = np.ma.asarray(values)
        if np.ma.is_masked(masked):
            raise InputError(
                f"{name}: masked cells: {int(np.ma.getmaskarray(masked).sum())}",
                hint="leave out their rows, or give the numbers without a mask",
            )
        array = np.asarray(values)
        # What NumPy turns into numbers, though it is none.
        if array.dtype.kind in "cmMSU":
            raise TypeError(f"{array.dtype}")
        return array.astype(np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as e:
        raise InputError(
            f"{name}: expected real numbers ({first_line(e)})",
            hint="such as an array of float64, or rows of numbers",
        ) from e


def check_labels(matrix_KM: np.ndarray, name: str, *, hint: str) -> None:
    """Refuse a first row or column that holds names or an index instead of scores.

    That is one that counts up by ones, or is whole where the rest has fractions.
    """
    for what, likely, label_N, rest in (
        ("row", "names of columns", matrix_KM[0], matrix_KM[1:]),
        ("column", "an index", matrix_KM[:, 0], matrix_KM[:, 1:]),
    ):
        if _are_labels(label_N, rest):
            shown = ", ".join(f"{value:g}" for value in label_N[:3])
            raise InputError(
                f"{name}: the first {what} "
                f"({shown}{', ...' if len(label_N) > 3 else ''}) looks like {likely}, "
                "not scores",
                hint=hint,
            )


def _are_labels(values_N: np.ndarray, rest: np.ndarray) -> bool:
    N, first = len(values_N), values_N[0]
    is_count = np.array_equal(values_N, first + np.arange(N)) and (N > 2 or first == 0)
    is_whole = bool((values_N == np.rint(values_N)).all() and (values_N >= 0).all())
    are_others = bool((rest != np.rint(rest)).any())
    if N == 1:
        # A lone 1 may be a score; pandas begins at 0.
        return bool(first == 0 and are_others)
    return is_count or (is_whole and are_others and len(np.unique(values_N)) > 1)


def check_cells(matrix_KM: np.ndarray, name: str) -> None:
    """Refuse cells that no log-likelihood can be; rows and columns count from 1."""
    bad = np.argwhere(~(np.abs(matrix_KM) <= LARGEST))
    if len(bad):
        row, column = bad[0]
        value = matrix_KM[row, column]
        fault = "too large" if np.isfinite(value) else "not a finite number"
        raise InputError(
            f"{name}: row {row + 1}, column {column + 1}: {value} is {fault}"
        )


def check_boundaries(values_K: np.ndarray, n_rows: int, name: str) -> np.ndarray:
    """A positive number per row, from one number or from as many."""
    if values_K.ndim != 1 or len(values_K) not in (1, n_rows):
        raise InputError(f"{name}: {values_K.size} numbers for {n_rows} rows")
    if not (np.isfinite(values_K).all() and (values_K > 0).all()):
        raise InputError(f"{name}: must be positive")
    if values_K.min() < 1e-9:
        raise InputError(f"{name}: smaller than 1e-9")
    return np.broadcast_to(values_K, n_rows).astype(np.float64)
