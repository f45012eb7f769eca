"""`jaxcontam calibrate`: how often a test rejects random orders of this file."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.arguments import path_word
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.templates import typed_newlines
from jaxcontam.orders.calibration import (
    RELABELLED,
    CalibrationResult,
    DrawnPValues,
    calibrate_test,
)
from jaxcontam.orders.methods import DIRECTION, order_method
from jaxcontam.orders.order_test import PlannedTest
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table
from jaxcontam.proof.publish import report_name, shown
from jaxcontam.reports.archive import P_VALUES_NAME, archive_bytes
from jaxcontam.reports.flags import (
    ReportFlags,
    ScoringFlags,
    TextFlags,
    check_positive,
    flags_of,
    names_of,
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
    Section,
    Table,
    report_page,
)
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import make_folder, write_files
from jaxcontam.scoring.shares import each_scored
from jaxcontam.stats.proportions import LEVELS
from jaxcontam.stats.result import Rejection
from jaxcontam.terminal import Terminal

_WORDS = PageWords(
    assumed=(
        "That the orders which were drawn are as good as random; they come from the "
        "seed below.",
    ),
    limits=(
        "Nothing here says whether the model saw the file: every order that was tested "
        "was drawn after the model was trained. Whether the published order is like a "
        "random one is what the checks of an audit look at.",
        "So many draws cannot show rates of rejection smaller than about one in their "
        "number.",
        THIS_ONE,
    ),
)

COMMAND = "calibrate"
MEANING = (
    "This checks the path from the file to p on this model: tokens, batches, padding, "
    "the place of each order, the law of the test. It does not validate that the "
    "published order of the file is exchangeable: random orders are, whatever the file."
)

_RELABELLED_MEANING = (
    "Columns of one scored order, relabelled at random: the law that an exact test "
    "refers to, and so a check of approximate tests alone."
)
_QQ = (
    "Each point is a p-value against the one that a uniform sample would have in its "
    "place, ties broken at random; most uniform samples stay within the band. A point "
    "above the line is a p-value that is too small."
)
_CHECK = (
    Code("p_values.npz"),
    " beside this file holds every p-value; ",
    Code("jaxcontam verify DIR"),
    " counts them again.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrate(ScoringFlags, TextFlags, ReportFlags):
    """Count how often a test rejects random orders of a file, as if published.

    Examples:
        # rejections of null orders
        jaxcontam calibrate MODEL_DIR benchmark.jsonl --tests reversal
    """

    benchmark: Positional[Path]
    """File: .jsonl, .json, .csv, .tsv, .txt."""
    tests: str = DIRECTION.name
    """Order tests, comma-separated; each fresh order costs what an audit costs."""
    draws: int | None = None
    """Fresh orders of the file (default: 100 for direction and reversal, 20 for
    others); approximate tests relabel the columns of one."""
    n_orders: int | None = None
    """Random orders a stratum (default: as in audit)."""
    group_field: str | None = None
    """Permute only within equal values of this field."""
    separator: str = "\n"
    """Text after each example, as in the training data."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "draws", "n_orders", "max_example_tokens")
        for name in self.test_names:
            order_method(name)

    @property
    def test_names(self) -> tuple[str, ...]:
        """Tests to calibrate."""
        return names_of(self.tests)

    def run(self) -> dict:
        """Load, draw, score, count, write and print; returns the report."""
        watch = Stopwatch()
        benchmark = load_benchmark(
            self.benchmark,
            template=self.template,
            text_field=self.text_field,
            no_header=self.no_header,
            limit=self.limit,
        )
        console = Terminal(stderr=True)
        console.say(*(f"{benchmark.name}: {words}" for words in benchmark.left_out))
        model = open_for(self, self.model)
        encoded = encode_examples(
            model.tokenizer,
            benchmark.texts,
            separator=typed_newlines(self.separator),
            max_example_tokens=self.max_example_tokens,
        )
        decides = (model.info.fingerprint, *flags_of(self))
        name = report_name(model.name, [benchmark], decides)
        out = self.folder(COMMAND, name)
        make_folder(out)
        scorer = self.scorer(model, out)

        def calibrated(name: str) -> tuple[CalibrationResult, DrawnPValues]:
            with progress_bar(name) as progress:
                return calibrate_test(
                    benchmark,
                    encoded,
                    order_method(name),
                    scorer,
                    prefix_id=model.prefix_id,
                    context=model.context,
                    seed=self.seed,
                    n_draws=self.draws,
                    n_orders=self.n_orders,
                    group_field=self.group_field,
                    begun=_announce,
                    progress=progress,
                )

        calls = (functools.partial(calibrated, name) for name in self.test_names)
        found = list(each_scored(calls))
        results, drawn = zip(*found, strict=True)
        report = watch.report(
            (COMMAND, self.model, path_word(self.benchmark), *flags_of(self)),
            self.seed,
            results,
            model=model.info,
            device=model.device,
        )
        return shown(
            lambda: write_files(report, {P_VALUES_NAME: archive_bytes(drawn)}, out),
            lambda console: _print(results, console),
            as_json=self.json,
        )


def _announce(planned: PlannedTest, n_fresh: int) -> None:
    Terminal(stderr=True).say(
        f"{planned.method.name}: {n_fresh} fresh order{'s' * (n_fresh > 1)} of "
        f"{len(planned.benchmark):,} examples, about "
        f"{n_fresh * planned.n_targets:,} tokens"
    )


def _print(results: Sequence[CalibrationResult], console: Terminal) -> None:
    levels = (f"p <= {level:g}\n(95 %)" for level in LEVELS)
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
    sentences = [calibration_sentence(row) for row in rows]
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


def calibration_sentence(row: CalibrationResult) -> str:
    """Name the draws, and how far from uniform their p-values are."""
    return (
        f"{row.method} on {row.n_examples:,} examples of {row.benchmark}: "
        f"{row.n_draws:,} {row.drawn}, {row.tokens_scored:,} tokens scored. "
        f"Distance of the p-values from uniform "
        f"{row.ks_statistic:.3f} (Kolmogorov-Smirnov p {row.ks_p_value:.2g})."
    )


def rate_text(cell: Rejection) -> str:
    """A rate of rejection with its interval."""
    low, high = (f"{end:.3f}".removeprefix("0") for end in (cell.low, cell.high))
    return f"{cell.rate:.3f} ({low}-{high})"


def _section(row: CalibrationResult, drawn: DrawnPValues) -> Section:
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.proof.plots import qq_plot

    values = drawn.p_value if drawn.p_randomised is None else drawn.p_randomised
    rates = [
        [f"{cell.level:g}", f"{cell.n_rejected:,}", rate_text(cell)]
        for cell in row.rejections
    ]
    header = ("p at most", "draws", "rate (95 % interval)")
    meaning = [Paragraph(_RELABELLED_MEANING)] * (row.drawn == RELABELLED)
    table = Table(header, rates, "rates of rejection")
    parts = [*meaning, table, Figure(qq_plot(values), _QQ)]
    return Section(parts, f"{row.method}, {row.drawn}")
