"""Flags of the commands on the order of a file: `audit`, `calibrate` and `plan`.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from jaxcontam.errors import InputError
from jaxcontam.orders.design import AuditDesign
from jaxcontam.reports.flags import (
    FirstTextsFlags,
    ReportFlags,
    ScoringFlags,
    check_positive,
    flag_of,
    in_order,
    prices_of,
    runs_here,
)

if TYPE_CHECKING:
    from jaxcontam.orders.methods import AskedTest
    from jaxcontam.orders.planning import PlanResult


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit(ScoringFlags, AuditDesign):
    """Test if a model saw benchmarks in their published order.

    Examples:
        # cost, and smallest effect that could be found
        jaxcontam audit MODEL_DIR benchmark.jsonl --dry-run
        # p-value, verdict, report
        jaxcontam audit MODEL_DIR benchmark.jsonl --reference OLDER_DIR
        jaxcontam audit MODEL_DIR mmlu.jsonl --group-field subject
        # a served model
        jaxcontam audit api:https://host/v1#NAME benchmark.jsonl --tokenizer DIR
    """

    benchmark: Positional[tuple[Path, ...]]
    """Files in published order: .jsonl, .json, .csv, .tsv, .txt, also .gz; .parquet; or
    hf:ORG/NAME:SPLIT, tfds:NAME/SPLIT, lm_eval:TASK."""
    reference: str | None = None
    """A comparable model that cannot have seen the file, named like MODEL; it gets the
    same tests. Without one a published order is at most suspected."""
    out: Path | None = None
    """Folder for the report (default: runs/audit/MODEL-BENCHMARK-DIGEST, the digest of
    all that decides the result)."""
    dry_run: bool = False
    """Print what would be scored and what it could find; score nothing."""
    time: bool = False
    """With --dry-run: also compile and time a batch, to say how long scoring takes."""
    price: str | None = None
    """For an api: model: prices IN,OUT per million tokens of prompts and of answers.
    For a model directory with --dry-run: price per hour of a device."""
    explain: bool = False
    """Print reasons, notes and next steps in full, as in the report."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        self.check_files(len(self.benchmark))
        AuditDesign.__post_init__(self)
        ScoringFlags.__post_init__(self)
        if self.time and not self.dry_run:
            raise InputError("--time goes with --dry-run")
        if self.reference is not None:
            self.check_reference()

    @property
    def hour_price(self) -> float | None:
        """Price of a device's hour, for a dry run of a model directory."""
        prices = prices_of(self.price) if self.dry_run and runs_here(self.model) else ()
        return prices[0] if len(prices) == 1 else None

    def run(self) -> dict:
        """Load, plan, score, decide, write and print; the report, or an estimate."""
        from jaxcontam.orders.command import audit, opened_model

        return audit(self, lambda: opened_model(self))


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrate(ScoringFlags, FirstTextsFlags, ReportFlags):
    """Count how often a test rejects random orders of a file, as if published.

    Examples:
        # rejections of null orders
        jaxcontam calibrate MODEL_DIR benchmark.jsonl --tests reversal
    """

    benchmark: Positional[Path]
    """File: .jsonl, .json, .csv, .tsv, .txt."""
    tests: str = "direction"
    """Order tests, comma-separated; each fresh order costs what an audit costs. NAME:N
    draws N random orders per stratum (default: as in audit)."""
    draws: int | None = None
    """Fresh orders of the file (default: 100 for direction and reversal, 20 for
    others); approximate tests relabel the columns of one."""
    group_field: str | None = None
    """Permute only within equal values of this field."""
    separator: str = "\n"
    """Text after each example, as in the training data."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "draws", "max_example_tokens")
        if self.separator.startswith("chat:"):
            raise InputError(
                f"--separator {self.separator}: calibrate reads no chat templates",
                hint="leave it out",
            )
        from jaxcontam.orders.methods import order_method

        for test in self.asked:
            order_method(test.name)

    @property
    def asked(self) -> "tuple[AskedTest, ...]":
        """Tests to calibrate."""
        from jaxcontam.orders.methods import asked_tests

        return asked_tests(self.tests.split(","))

    def run(self) -> dict:
        """Load, draw, score, count, write and print; returns the report."""
        from jaxcontam.orders.calibrate import calibrate

        return calibrate(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan the examples, orders, tokens and hours for a wanted power; needs no model.

    Examples:
        # power of so many examples
        jaxcontam plan --effect 0.5 --sd 4 --examples 1000
        jaxcontam plan --pilot runs/pilot --power 0.9  # from a small audit
    """

    effect: float | None = None
    """Nats that each published boundary gains (default: the pilot's)."""
    sd: float | None = None
    """Standard deviation, in nats, that chance adds to a boundary; a --pilot gives that
    of each of its tests (pairs have about half that of whole orders)."""
    pilot: Path | None = None
    """Folder of a finished report, whose effect, spread and speed are used."""
    pilot_benchmark: str | None = None
    """Benchmark of the pilot, if it has several."""
    examples: int | None = None
    """Available examples (default: the pilot's; without a pilot, the number
    required)."""
    example_tokens: float | None = None
    """Mean tokens per example (default: the pilot's, else 64)."""
    context: int | None = None
    """Tokens that the model reads at once (default: the pilot's, else 2048)."""
    power: float = 0.8
    """Wanted probability of finding the effect."""
    level: float = 0.001
    """p-value that counts as found."""
    tests: str | None = None
    """Order tests, comma-separated (default: every test of examples' order); NAME:N
    draws N random orders per stratum (default: as in audit)."""
    tokens_per_second: float | None = None
    """Speed of scoring (default: the pilot's)."""
    json: bool = False
    """Print the plan as JSON."""

    def __post_init__(self) -> None:
        check_positive(self, "examples", "context")
        for name in ("sd", "example_tokens", "tokens_per_second", "effect"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{flag_of(name)} must be positive, got {value}")
        for name in ("power", "level"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"--{name} must be between 0 and 1, got {getattr(self, name)}"
                )
        if self.pilot is None and (self.effect is None or self.sd is None):
            raise InputError(
                "a plan needs --effect and --sd, or --pilot",
                hint="for scale: a small reference model had an sd of 0.5 to 19 nats "
                "per boundary",
            )
        if self.pilot is None and self.pilot_benchmark is not None:
            raise InputError("--pilot-benchmark goes with --pilot")
        _ = self.asked

    @property
    def asked(self) -> "tuple[AskedTest, ...]":
        """Tests to plan."""
        from jaxcontam.orders.methods import asked_tests
        from jaxcontam.orders.power_designs import PLANNED

        words = [*PLANNED] if self.tests is None else self.tests.split(",")
        return asked_tests(words, known=PLANNED)

    def run(self) -> "PlanResult":
        """Plan and print; returns the plan."""
        from jaxcontam.orders.planning import plan

        return plan(self)
