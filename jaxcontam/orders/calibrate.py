"""Rejection rate of a test on random orders of a file: `jaxcontam calibrate`."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxcontam.arguments import path_word
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import Encoded, encode_examples
from jaxcontam.data.templates import typed_newlines
from jaxcontam.orders.flags import Calibrate
from jaxcontam.orders.methods import (
    AskedTest,
)
from jaxcontam.orders.order_test import PlannedTest, TestMethod, plan_test, score_test
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.progress import Progress, progress_after, progress_bar
from jaxcontam.proof.outcome import bare_table
from jaxcontam.proof.publish import report_name, shown
from jaxcontam.proof.result import Evidence
from jaxcontam.reports.archive import P_VALUES_NAME, archive_bytes
from jaxcontam.reports.flags import (
    flags_of,
    open_for,
)
from jaxcontam.reports.methods import Words
from jaxcontam.reports.page import (
    THIS_ONE,
    Code,
    Figure,
    Items,
    Page,
    PageWords,
    Paragraph,
    Part,
    Section,
    Table,
    report_page,
)
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import make_folder, write_files
from jaxcontam.reports.terms import Validity
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.parts import ShareScored
from jaxcontam.scoring.seam import SEAM, WHOLE, Seam
from jaxcontam.scoring.shares import each_scored
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.proportions import (
    LEVELS,
    distance_from_uniform,
    randomised,
    rejection,
    relabelled_p_values,
)
from jaxcontam.stats.result import Rejection
from jaxcontam.terminal import Terminal

# Streams 0 to 2 of a file's draws are those of the tests.
_STREAM = 3
# Fresh orders unless the user says otherwise: a test of two passes can afford more.
_N_FRESH_CHEAP, _N_FRESH = 100, 20
# Relabelled columns cost no model call.
_N_RELABELLED = 10_000


FRESH, RELABELLED = "fresh orders", "relabelled columns"
"""Origin of the p-values of a calibration."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FreshOrder:
    """A file in a random order, to be tested as if it had been published so.

    Attributes:
        seed: For the test. Each order has its own: against one set of drawn orders
            the p-values of many orders of a file would depend on each other.
    """

    benchmark: Benchmark
    encoded: Encoded
    seed: int
    uniform: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """Rejection rate of one test where there is nothing to find: a row of `calibrate`.

    It checks the path from the file to p, on one model and one file. It does not show
    that the published order of that file is exchangeable.

    Attributes:
        drawn: `fresh orders`: random orders of the file, each scored as if published;
            `relabelled columns`: one scored order, random columns as published.
        tokens_scored: Target tokens that went through the model, in all draws.
        cached_tokens: Target tokens whose scores were reused.
        ks_statistic: Largest distance of the p-values, ties broken at random, from the
            uniform law.
        ks_p_value: Its p-value.
    """

    benchmark: str
    fingerprint: str
    content_digest: str
    n_examples: int
    method: str
    validity: Validity
    drawn: str
    n_draws: int
    n_strata: int
    n_orders: int
    group_field: str | None
    tokens_scored: int
    cached_tokens: int
    rejections: tuple[Rejection, ...]
    ks_statistic: float
    ks_p_value: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DrawnPValues:
    """p-values of one row of results.

    Attributes:
        p_value: (R,) as reports would show them.
        p_randomised: (R,) with ties broken at random; None for relabelled columns.
    """

    p_value: np.ndarray
    p_randomised: np.ndarray | None = None

    @property
    def compared(self) -> np.ndarray:
        """(R,) values that are compared with the uniform law."""
        return self.p_value if self.p_randomised is None else self.p_randomised


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport(Report):
    """A report of how often tests reject where nothing is to be found."""

    results: tuple[CalibrationResult, ...]


def calibrate_test(
    benchmark: Benchmark,
    encoded: Encoded,
    method: TestMethod,
    scorer: SequenceScorer,
    *,
    prefix_id: int | None,
    context: int,
    seed: int,
    n_draws: int | None = None,
    n_orders: int | None = None,
    group_field: str | None = None,
    seam: Seam = WHOLE,
    n_relabelled: int = _N_RELABELLED,
    begun: Callable[[PlannedTest, int], None] | None = None,
    progress: Progress | None = None,
) -> tuple[CalibrationResult, DrawnPValues]:
    """p-values of a test where nothing is to be found, and its row of the report.

    An exact test is run on fresh orders from end to end, `n_draws` of them (None
    chooses by cost); columns of an approximate one are relabelled `n_relabelled` times.
    The order of the file does not matter. The seed seeds the fresh orders and, through
    them, each test. `begun` is told the first planned test and the number of fresh
    orders before anything is scored. ShareScored comes after the whole share.
    """
    is_exact = method.validity == "exact"
    groups = None if group_field is None else benchmark.groups(group_field)
    n_fresh = 1
    if is_exact:
        some_pairs = method.scores_pairs and not method.whole
        is_cheap = method.default_orders == 1 or some_pairs
        n_fresh = n_draws or (_N_FRESH_CHEAP if is_cheap else _N_FRESH)
    n_scored = n_cached = n_targets = 0
    found: list[tuple[float, float]] = []
    first, relabelled_R, over = None, np.empty(0), None
    for draw in range(n_fresh):
        fresh = fresh_order(benchmark, encoded, seed=seed, draw=draw, groups=groups)
        planned = plan_test(
            fresh.benchmark,
            fresh.encoded,
            method,
            prefix_id=prefix_id,
            context=context,
            seed=fresh.seed,
            n_orders=n_orders,
            group_field=group_field,
            seam=seam,
        )
        if first is None:
            first = planned
            # Cuts and equal sequences differ a little from order to order.
            n_targets = n_fresh * first.n_targets
            if begun is not None:
                begun(first, n_fresh)
        after = progress_after(progress, n_scored + n_cached, n_targets)
        try:
            scored = score_test(planned, scorer, after)
        except ShareScored as e:
            over = e
            continue
        n_scored += planned.n_targets - scored.n_cached
        n_cached += scored.n_cached
        if is_exact:
            found.append(p_values(planned, scored.evidence, uniform=fresh.uniform))
        else:
            relabelled_R = relabelled(planned, scored.evidence, n_draws=n_relabelled)
    if over is not None:
        raise over
    assert first is not None
    drawn = DrawnPValues(relabelled_R)
    if is_exact:
        drawn = DrawnPValues(*np.array(found).T)
    result = CalibrationResult(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        n_examples=len(benchmark),
        method=method.name,
        validity=method.validity,
        drawn=FRESH if is_exact else RELABELLED,
        n_strata=first.layout.design.n_strata,
        n_orders=first.layout.n_orders,
        group_field=group_field,
        tokens_scored=n_scored,
        cached_tokens=n_cached,
        **counts_of(drawn),
    )
    return result, drawn


def counts_of(drawn: DrawnPValues) -> dict[str, Any]:
    """Fields of a `CalibrationResult` that follow from its p-values."""
    statistic, p_value = distance_from_uniform(drawn.compared)
    return {
        "n_draws": len(drawn.p_value),
        "rejections": tuple(rejection(drawn.p_value, level) for level in LEVELS),
        "ks_statistic": statistic,
        "ks_p_value": p_value,
    }


def fresh_order(
    benchmark: Benchmark,
    encoded: Encoded,
    *,
    seed: int,
    draw: int,
    groups: list[object] | None = None,
) -> FreshOrder:
    """The `draw`-th random order of a file."""
    rng = row_generator(seed, benchmark.content_digest, _STREAM, draw)
    order = np.arange(len(benchmark))
    places: dict[object, list[int]] = {}
    for i, value in enumerate(groups or [None] * len(benchmark)):
        places.setdefault(value, []).append(i)
    for own in places.values():
        order[own] = rng.permutation(own)
    texts = tuple(benchmark.texts[i] for i in order)
    rows = tuple(benchmark.rows[i] for i in order)
    ids = tuple(encoded.ids[i] for i in order)
    return FreshOrder(
        benchmark=Benchmark(benchmark.name, texts, rows, "seeded"),
        encoded=dataclasses.replace(
            encoded, ids=ids, n_cut_ids=encoded.n_cut_ids[order]
        ),
        seed=int(rng.integers(2**31)),
        uniform=float(rng.random()),
    )


def p_values(
    planned: PlannedTest, evidence: Evidence, *, uniform: float
) -> tuple[float, float]:
    """The p-value that a report would show, and its randomised version."""
    # Where in the file the evidence lies enters no p-value, and takes time.
    method = dataclasses.replace(planned.method, locates=False)
    if evidence.scores is not None:
        opposite = dataclasses.replace(evidence, scores=-evidence.scores)
    else:
        assert evidence.pairs is not None
        opposite = dataclasses.replace(evidence, pairs=-evidence.pairs)
    p_value, other = (
        planned.numbers(one, method).p_value for one in (evidence, opposite)
    )
    return p_value, randomised(p_value, other, uniform)


def relabelled(planned: PlannedTest, evidence: Evidence, *, n_draws: int) -> np.ndarray:
    """(n_draws,) p-values of an approximate test with random columns as published."""
    method = planned.method
    assert isinstance(method, OrderMethod) and evidence.scores is not None
    boundaries_K = np.ones(len(evidence.scores))
    return relabelled_p_values(
        evidence.scores,
        lambda loglik_KM: method.analyse(loglik_KM, boundaries_K, 0).p_value,
        n_draws=n_draws,
        seed=planned.seed,
    )


_WORDS = PageWords(
    assumed=(
        "That the drawn orders are as good as random; they come from the seed below.",
    ),
    limits=(
        "Nothing here says whether the model saw the file: every order that was tested "
        "was drawn after the model was trained. The checks of an audit examine whether "
        "the published order is like a random one.",
        "Rates of rejection below about one divided by the number of draws cannot be "
        "shown.",
        THIS_ONE,
    ),
)

COMMAND = "calibrate"
MEANING = (
    "This checks the path from the file to p on this model: tokens, batches, padding, "
    "the place of each order, the distribution of the test. It does not show that the "
    "published order of the file is exchangeable: random orders are, for any file."
)

_RELABELLED_MEANING = (
    "Columns of one scored order, relabelled at random: the distribution that an exact "
    "test uses, so this checks only approximate tests."
)
_QQ = (
    "Each point is a p-value against its expected value in a uniform sample, with ties "
    "broken at random; most uniform samples stay within the band. A point above the "
    "line is a p-value that is too small."
)
_CHECK = (
    Code("p_values.npz"),
    " in this folder holds every p-value; ",
    Code("jaxcontam verify DIR"),
    " recounts them.",
)


def calibrate(command: Calibrate) -> dict:
    """Load, draw, score, count, write and print; returns the report."""
    watch = Stopwatch()
    benchmark = load_benchmark(
        command.benchmark,
        template=command.template,
        text_field=command.text_field,
        no_header=command.no_header,
        limit=command.limit,
    )
    console = Terminal(stderr=True)
    console.say(*(f"{benchmark.name}: {words}" for words in benchmark.left_out))
    model = open_for(command, command.model)
    encoded = encode_examples(
        model.tokenizer,
        benchmark.texts,
        separator=typed_newlines(command.separator),
        max_example_tokens=command.max_example_tokens,
    )
    decides = (model.info.fingerprint, *flags_of(command))
    name = report_name(model.name, [benchmark], decides)
    out = command.folder(COMMAND, name)
    make_folder(out)
    scorer = command.scorer(model, out)

    def announce(planned: PlannedTest, n: int) -> None:
        console.say(
            f"{planned.method.name}: {n} fresh order{'s' if n > 1 else ''} of "
            f"{len(benchmark):,} examples, about {n * planned.n_targets:,} tokens"
        )

    def calibrated(test: AskedTest) -> tuple[CalibrationResult, DrawnPValues]:
        method = test.method
        assert isinstance(method, TestMethod)
        with progress_bar(test.name) as progress:
            return calibrate_test(
                benchmark,
                encoded,
                method,
                scorer,
                prefix_id=model.prefix_id,
                context=model.context,
                seed=command.seed,
                n_draws=command.draws,
                n_orders=test.n_orders,
                group_field=command.group_field,
                seam=SEAM,
                begun=announce,
                progress=progress,
            )

    calls = (functools.partial(calibrated, test) for test in command.asked)
    found = list(each_scored(calls))
    results, drawn = zip(*found, strict=True)
    report = watch.report(
        (COMMAND, command.model, path_word(command.benchmark), *flags_of(command)),
        command.seed,
        results,
        model=model.info,
        device=model.device,
    )
    return shown(
        lambda: write_files(report, {P_VALUES_NAME: archive_bytes(drawn)}, out),
        lambda console: _print(results, console),
        as_json=command.json,
    )


def _print(results: Sequence[CalibrationResult], console: Terminal) -> None:
    levels = (f"p <= {level:g}\n(95%)" for level in LEVELS)
    rows = (
        [
            row.method,
            f"{row.n_draws:,} {row.drawn.split()[0]}",
            *map(rate_text, row.rejections),
            f"{row.ks_p_value:.2g}",
        ]
        for row in results
    )
    header = ("test", "draws", *levels, "KS p")
    console.print(bare_table(header, rows, words=(0, 1)))
    console.print(f"\n{MEANING}")


def calibration_page(
    report: Report, drawn: Sequence[DrawnPValues], words: Words
) -> Page:
    """The page of a calibration; `drawn` are the p-values of each row."""
    rows = [row for row in report.results if isinstance(row, CalibrationResult)]
    sentences = [
        f"{row.method} on {row.n_examples:,} examples of {row.benchmark}: "
        f"{row.n_draws:,} {row.drawn}, {row.tokens_scored:,} tokens scored. Distance "
        f"of the p-values from uniform {row.ks_statistic:.3f} (Kolmogorov-Smirnov p "
        f"{row.ks_p_value:.2g})."
        for row in rows
    ]
    sections = [Section([Items(sentences), Paragraph(MEANING)])]
    sections += [_section(row, one) for row, one in zip(rows, drawn, strict=True)]
    model = "" if report.model is None else f"{report.model.name}, "
    return report_page(
        report,
        sections,
        words,
        title=f"Calibration: {model}{rows[0].benchmark}",
        kind=_WORDS,
        check=_CHECK,
    )


def rate_text(cell: Rejection) -> str:
    """A rate of rejection with its interval."""
    low, high = (f"{end:.3f}".removeprefix("0") for end in (cell.low, cell.high))
    return f"{cell.rate:.3f} ({low}-{high})"


def _section(row: CalibrationResult, drawn: DrawnPValues) -> Section:
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.proof.plots import qq_plot

    rates = [
        [f"{cell.level:g}", f"{cell.n_rejected:,}", rate_text(cell)]
        for cell in row.rejections
    ]
    header = ("p at most", "draws", "rate (95% interval)")
    table = Table(header, rates, "rates of rejection")
    parts: list[Part] = [table, Figure(qq_plot(drawn.compared), _QQ)]
    if row.drawn == RELABELLED:
        parts.insert(0, Paragraph(_RELABELLED_MEANING))
    return Section(parts, f"{row.method}, {row.drawn}")
