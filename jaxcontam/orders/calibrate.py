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
from jaxcontam.orders import direction
from jaxcontam.orders.calibration import calibrate_test
from jaxcontam.orders.calibration_page import COMMAND, MEANING, rate_text
from jaxcontam.orders.calibration_result import CalibrationResult, DrawnPValues
from jaxcontam.orders.methods import order_method
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
from jaxcontam.reports.report_files import make_folder
from jaxcontam.reports.saved import write_files
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.scoring.shares import each_scored
from jaxcontam.stats.proportions import LEVELS
from jaxcontam.terminal import Terminal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrate(ScoringFlags, TextFlags, ReportFlags):
    """Count how often a test rejects random orders of a file, as if published.

    Examples:
        # rejections of null orders
        jaxcontam calibrate MODEL_DIR benchmark.jsonl --tests reversal
    """

    benchmark: Positional[Path]
    """File: .jsonl, .json, .csv, .tsv, .txt."""
    tests: str = direction.METHOD.name
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
