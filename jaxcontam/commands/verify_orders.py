"""A report of order tests against its `orders.npz`: recomputed, without a model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.commands.recomputed import noise_of, same
from jaxcontam.commands.verify_reference import reference_faults
from jaxcontam.commands.verify_verdicts import (
    is_score,
    report_faults,
    row_faults,
    score_faults,
    shape_faults,
)
from jaxcontam.commands.verify_versions import deal_faults, version_faults
from jaxcontam.errors import InputError
from jaxcontam.methods import direction, reported_method, two_min
from jaxcontam.methods.method import PairMethod, SequentialMethod, stratum_runs
from jaxcontam.methods.two_min import combined_numbers
from jaxcontam.methods.version_method import VersionMethod
from jaxcontam.report import calibration
from jaxcontam.report.archive import read_archive
from jaxcontam.report.document import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    is_report_of,
    is_sealed,
    read_document,
)
from jaxcontam.results import Evidence, OrderNumbers, OrderResult
from jaxcontam.results.order import MATRIX as METHOD_NAME
from jaxcontam.results.read import read_result
from jaxcontam.stats.direction import needed_pairs
from jaxcontam.stats.effect import LEVEL
from jaxcontam.stats.orders import (
    OrderDesign,
    published_orders,
)
from jaxcontam.stats.randomisation import MATRIX_TOLERANCE, randomisation_test
from jaxcontam.verdict import decide, screen

# What fields of another type, or arrays of another shape, make the tests raise.
_UNREADABLE = (
    *(TypeError, ValueError, IndexError, AttributeError, ArithmeticError),
    InputError,
)
# Only these can be differences of large numbers near 0; they have a scale of their own.
_SIGNED = {"statistic", "effect", "symmetry", "lag_profile", "neighbours"}


def verify_report(directory: Path) -> tuple[list[str], int]:
    """Check digests, redraw the orders, recompute all numbers and verdicts.

    Returns:
        What differs, one line each, and the number of tests recomputed.

    Raises:
        InputError: If the folder has no readable report and archive.
    """
    document = read_document(directory / REPORT_NAME)
    if isinstance(document.get("command"), list) and is_report_of(
        document, calibration.COMMAND
    ):
        raise InputError(
            f"{directory}: a calibration, whose orders were not kept",
            hint="run it again: the same seed gives the same p-values",
        )
    faults = []
    digest, text = document.get("digest"), (directory / REPORT_NAME).read_bytes()
    if not isinstance(digest, str) or not is_sealed(text, digest):
        faults.append(f"{REPORT_NAME}: its digest is not that of its content")
    archive = directory / ARCHIVE_NAME
    if not archive.is_file():
        raise InputError(f"{archive}: no such file", hint="it stands beside the report")
    rows, digests = document.get("results"), document.get("digests")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return [*faults, f"{REPORT_NAME}: results is no list of objects"], 0
    seed, command = document.get("seed"), document.get("command")
    if type(seed) is not int or seed < 0:
        return [*faults, f"{REPORT_NAME}: seed is {seed!r}"], 0
    if not isinstance(command, list) or not all(isinstance(w, str) for w in command):
        return [*faults, f"{REPORT_NAME}: command is no list of words"], 0
    if not isinstance(digests, dict) or archive_digest(archive) != digests.get(
        ARCHIVE_NAME
    ):
        # A damaged archive can fail in many ways: it is not opened.
        fault = f"{ARCHIVE_NAME}: its digest is not the one in {REPORT_NAME}"
        return [*faults, fault], 0
    try:
        evidence = read_archive(archive, len(rows))
    except InputError as e:
        return [*faults, str(e)], 0
    n_benchmarks = sum(row.get("primary") is True for row in rows)
    tests: list[tuple[int, OrderResult]] = []
    for r, row in enumerate(rows):
        where = f"result {r} ({row.get('benchmark')}, {row.get('method')})"
        if is_score(row):
            faults += [f"{where}: {fault}" for fault in score_faults(row)]
            continue
        try:
            result = read_result(OrderResult, row)
            found = row_faults(
                result, command, scored=document.get("model") is not None
            )
            faults += [f"{where}: {fault}" for fault in found]
            if result.method == two_min.METHOD.name:
                numbers = _recombine(result, [test for _, test in tests])
                found = _differences(result.numbers, numbers, None)
            else:
                scored = evidence[r]
                if scored is None:
                    raise ValueError(f"no scores in {ARCHIVE_NAME}")
                found = shape_faults(result, scored)
                # Orders are drawn only as many as there are.
                found = found or _order_faults(result, scored, seed, n_benchmarks)
                numbers = _recompute(result, scored, seed)
                found += _differences(result.numbers, numbers, scored)
                found += reference_faults(result, scored, document)
            faults += [f"{where}: {fault}" for fault in found]
            tests.append((r, dataclasses.replace(result, numbers=numbers)))
        except KeyError as e:
            faults.append(f"{where}: not recomputable (no {e})")
        except _UNREADABLE as e:
            faults.append(f"{where}: not recomputable ({e})")
    results, min_effect = [test for _, test in tests], document.get("min_effect")
    faults += deal_faults(tests, evidence, seed)
    faults += report_faults(results, command, min_effect)
    faults += _verdict_faults(tests, rows, min_effect)
    if "screening" in document:
        faults += _screening_faults(tests, document["screening"])
    return faults, len(tests)


def _recombine(result: OrderResult, tests: list[OrderResult]) -> OrderNumbers:
    """Numbers of a test that is made of others, which stand before it."""
    of_benchmark = {
        test.method: test.numbers
        for test in tests
        if test.benchmark == result.benchmark
    }
    return combined_numbers([of_benchmark[part.name] for part in two_min.METHOD.parts])


def _recompute(result: OrderResult, evidence: Evidence, seed: int) -> OrderNumbers:
    if result.method == METHOD_NAME:
        if evidence.boundaries is None or evidence.scores is None:
            raise ValueError("no scores or boundaries")
        return randomisation_test(
            evidence.scores,
            evidence.boundaries,
            scores=result.numbers.scores,  # pyright: ignore[reportArgumentType]
            relative_tolerance=MATRIX_TOLERANCE,
            seed=seed,
        )
    return reported_method(result.method).numbers(
        evidence,
        grouped=result.group_field is not None,
        seed=seed,
        content_digest=result.content_digest,
    )


def _order_faults(
    result: OrderResult, evidence: Evidence, seed: int, n_benchmarks: int
) -> list[str]:
    """Whether the orders are those that the seed and the content draw."""
    if result.method == METHOD_NAME:
        return []
    method = reported_method(result.method)
    if isinstance(method, PairMethod):
        return _pair_faults(result, evidence)
    if isinstance(method, VersionMethod):
        return version_faults(result, evidence, seed)
    if evidence.orders is None or evidence.place is None or evidence.scores is None:
        return ["no orders"]
    if evidence.orders.shape[:2] != evidence.scores.shape:
        return ["orders and scores differ in shape"]
    if isinstance(method, SequentialMethod):
        rule_faults = _rule_faults(method, result, evidence, n_benchmarks)
        if result.group_field is not None:
            in_file_order = np.argsort(evidence.orders[:, 0, 0])
            return [
                *rule_faults,
                *_permutation_faults(evidence.orders[in_file_order]),
            ]
        shape = evidence.scores.shape
        drawn = method.redraw(result, (shape[0], shape[1]), seed)
        return [*rule_faults, *_drawn_faults(drawn, evidence.orders, evidence.place)]
    if result.group_field is not None:
        # The groups stand in the benchmark, not in the report: no redrawing.
        return _permutation_faults(evidence.orders)
    n_strata = result.n_strata + result.n_dropped
    strata = np.array_split(np.arange(result.n_examples), n_strata)
    try:
        drawn = method.redraw(
            strata, result.n_orders, seed=seed, content_digest=result.content_digest
        )
    except ValueError as e:
        return [str(e)]
    return _drawn_faults(drawn, evidence.orders, evidence.place)


def _drawn_faults(
    drawn: OrderDesign, orders_KMS: np.ndarray, place_K: np.ndarray
) -> list[str]:
    faults = []
    if not np.array_equal(drawn.orders, orders_KMS):
        faults.append("orders are not those of the seed and the content digest")
    if not np.array_equal(drawn.place, place_K):
        faults.append("places are not those of the seed and the content digest")
    return faults


def _rule_faults(
    method: SequentialMethod, result: OrderResult, evidence: Evidence, n_benchmarks: int
) -> list[str]:
    """Whether a sequential test stopped by the rule that was fixed before it began."""
    if evidence.rule is None or evidence.rule.shape != (2,):
        return ["no rule of stopping"]
    level, most = evidence.rule.tolist()
    faults = []
    if not same(level, LEVEL / max(1, n_benchmarks)):
        faults.append(f"stops at {level!r}, not at 0.001 over {n_benchmarks}")
    if most != getattr(result, method.turns_of):
        faults.append(f"may score {most:.0f}, not {method.turns_of}")
    if result.numbers.stop is None:
        faults.append("ends before its rule says so")
    return faults


def _pair_faults(result: OrderResult, evidence: Evidence) -> list[str]:
    """Whether the pair matrices are those of the file's strata."""
    orders, pairs, codes = evidence.orders, evidence.pairs, evidence.codes
    if orders is None or pairs is None or codes is None:
        return ["no pair matrices"]
    if pairs.shape[1:3] != orders[:, 0].shape or codes.shape != orders[:, 0].shape:
        return ["orders, groups and pair matrices differ in shape"]
    faults = _run_faults(result, evidence)
    if result.group_field is not None:
        # The groups stand in the benchmark, not in the report.
        return faults + _permutation_faults(orders)
    strata = np.array_split(np.arange(result.n_examples), result.n_strata)
    published, _ = published_orders(strata)
    if not np.array_equal(published.orders, orders):
        faults.append("strata are not those of the file")
    if codes.any():
        faults.append("there are groups, and no --group-field")
    return faults


def _run_faults(result: OrderResult, evidence: Evidence) -> list[str]:
    """Whether runs are those of the file, and pairs those that the test asks for."""
    orders, pairs, runs = evidence.orders, evidence.pairs, evidence.runs
    if orders is None or pairs is None or runs is None:
        return ["no runs"]
    published_KS = orders[:, 0]
    if not np.array_equal(runs, stratum_runs(published_KS, result.n_examples)):
        return ["runs are not those of the file"]
    is_sparse = bool(np.isnan(pairs).any())
    if is_sparse and result.method != direction.METHOD.name:
        return ["pairs are missing"]
    sizes_K = (published_KS >= 0).sum(axis=1).tolist()
    for matrix, runs_S, size in zip(pairs[0], runs, sizes_K, strict=True):
        missing_SS = np.isnan(matrix[:size, :size])
        needed_SS = needed_pairs(runs_S[:size]) | np.eye(size, dtype=bool)
        if is_sparse and not np.array_equal(~missing_SS, needed_SS):
            return ["pairs are not those that tell the direction"]
    return []


def _permutation_faults(orders_KMS: np.ndarray) -> list[str]:
    """Whether rows are disjoint runs of the file, and columns permute their run."""
    published_KS = orders_KMS[:, 0]
    in_order = published_KS[published_KS >= 0]
    is_run = np.diff(published_KS, axis=1) == 1
    if not (is_run | (published_KS[:, 1:] < 0)).all() or (np.diff(in_order) < 1).any():
        return ["published orders are not disjoint runs of the file"]
    if (np.sort(orders_KMS, axis=2) != np.sort(published_KS, axis=1)[:, None]).any():
        return ["a column is no permutation of its stratum"]
    return []


def _differences(
    stated: OrderNumbers, computed: OrderNumbers, evidence: Evidence | None
) -> list[str]:
    noise = 0.0
    if evidence is not None:
        scored = evidence.pairs if evidence.scores is None else evidence.scores
        assert scored is not None
        noise = noise_of(scored)
    return [
        f"{field.name} is {a!r}, recomputed {b!r}"
        for field in dataclasses.fields(OrderNumbers)
        if not same(
            a := getattr(stated, field.name),
            b := getattr(computed, field.name),
            noise if field.name in _SIGNED else 0.0,
        )
    ]


def _verdict_faults(
    tests: list[tuple[int, OrderResult]], rows: list[dict[str, Any]], min_effect
) -> list[str]:
    if not isinstance(min_effect, int | float):
        return [f"{REPORT_NAME}: no min_effect"]
    # What is stated must not pass for what was decided.
    undecided = [
        dataclasses.replace(result, p_adjusted=None, verdict=None)
        for _, result in tests
    ]
    decided = decide(undecided, min_effect=min_effect)
    return [
        f"result {r} ({result.benchmark}, {result.method}): {name} is "
        f"{rows[r].get(name)!r}, recomputed {value!r}"
        for (r, _), result in zip(tests, decided, strict=True)
        for name, value in (
            ("p_adjusted", result.p_adjusted),
            ("verdict", result.verdict),
        )
        if not same(rows[r].get(name), value)
    ]


def _screening_faults(
    tests: list[tuple[int, OrderResult]], stated: object
) -> list[str]:
    computed = [dataclasses.asdict(row) for row in screen([test for _, test in tests])]
    if same(_flat(stated), _flat(computed)):
        return []
    return [f"screening is {stated!r}, recomputed {computed!r}"]


def _flat(rows: object) -> list[object]:
    """Values of a list of objects, row by row."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return [rows]
    return [row.get(name) for row in rows for name in ("benchmark", "by", "e_bh")]
