"""Job of a population's processes, and results of its finished models."""

import dataclasses
import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxcontam.report.outcome import bare_table
from jaxcontam.stats.proportions import wilson_interval
from train.population_plan import Design, Texts

TESTS_NAME = "tests.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that a process needs to train any model of a population.

    Attributes:
        design: What the models share.
        out: Folder of the population.
        test: Method that tests every set, or None.
        weights: Whether models, sets and streams are kept.
        code: Git commit, for manifests.
        sources: Digest of the source files; another one makes models anew.
        tokenizer: A transformers fast tokenizer, as models are saved with it.
        texts: Background and pool; processes share the background's files.
        tokenizer_digest: SHA-256 of the tokenizer's JSON.
        pool_digest: Digest of the pool, in its order.
        device: What computes: `scan` or `vmap`, and on which kind of device.
    """

    design: Design
    out: Path
    test: str | None
    weights: bool
    code: str | None
    sources: str
    tokenizer: Any
    texts: Texts
    tokenizer_digest: str
    pool_digest: str
    device: str

    @property
    def is_scan(self) -> bool:
        """Whether each process trains one model after another, by a scan."""
        return self.device.startswith("scan")

    def folder(self, seed: int) -> Path:
        """Folder of one model."""
        return self.out / f"model-{seed}"

    def key(self, seed: int) -> str:
        """Digest of all inputs of a model."""
        parts = [
            dataclasses.asdict(self.design),
            seed,
            self.test,
            self.weights,
            self.sources,
            self.texts.documents.corpus_digest,
            self.texts.documents.digest,
            self.tokenizer_digest,
            self.pool_digest,
            self.device,
        ]
        text = json.dumps(parts, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """The test of one set of one model; numbers as in `OrderNumbers`."""

    name: str
    copies: int
    method: str
    n_examples: int
    n_strata: int
    p_value: float | None
    log10_p: float
    effect: float | None
    effect_se: float | None
    mde: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One finished model.

    Attributes:
        seed: Seed of sets, stream, weights and tests.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_canary_tokens: Ids of all copies of all sets.
        loss: Mean of the last steps, nats per token.
        train_seconds: Wall time of planning and training, compilation included; where
            models are trained together, a model's share.
        test_seconds: Likewise of tests.
        cpu_seconds: CPU time of both, which other programs on the machine do not
            lengthen much.
        rows: One per set; empty without tests.
    """

    seed: int
    n_parameters: int
    n_tokens: int
    n_canary_tokens: int
    loss: float
    train_seconds: float
    test_seconds: float
    cpu_seconds: float
    rows: tuple[SetResult, ...]


def source_digest() -> str:
    """Digest of every source file that trains and tests, whether git knows it or not.

    Narrower than a commit: a new README makes no finished model obsolete.
    """
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in ("jaxcontam", "train"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def finished_result(job: Job, seed: int) -> ModelResult | None:
    """Result of a finished model, if its folder was written by the same job."""
    try:
        fields = json.loads((job.folder(seed) / TESTS_NAME).read_text("utf-8"))
        if fields.pop("key") != job.key(seed):
            return None
        rows = tuple(SetResult(**row) for row in fields.pop("rows"))
        return ModelResult(rows=rows, **fields)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


LEVELS = (0.001, 0.05)
"""Levels at which power is stated."""
# A p-value of the level itself must not be lost to rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Share of sets that a test finds at one duplication count.

    Attributes:
        method: The test.
        copies: Duplication count; at 0 the share is the test's size.
        level: Significance level.
        n_sets: Sets tested, one or more a model.
        n_rejected: p-values at or below the level.
        low: Lower end of the 95 % Wilson interval of the share, which treats sets of
            one model as independent.
        high: Its upper end.
        median_log10_p: Over the sets.
        mean_effect: Nats per boundary, over the sets.
    """

    method: str
    copies: int
    level: float
    n_sets: int
    n_rejected: int
    low: float
    high: float
    median_log10_p: float
    mean_effect: float | None


def power_rows(models: Sequence[ModelResult]) -> list[PowerRow]:
    """One row per test, duplication count and level; counts ascend."""
    cells: dict[tuple[str, int], list[SetResult]] = {}
    for model in models:
        for row in model.rows:
            cells.setdefault((row.method, row.copies), []).append(row)
    table = []
    for (method, copies), rows in sorted(cells.items()):
        effects = [row.effect for row in rows if row.effect is not None]
        for level in LEVELS:
            threshold = math.log10(level) + _ROUNDING
            n_rejected = sum(row.log10_p <= threshold for row in rows)
            low, high = wilson_interval(n_rejected, len(rows))
            table.append(
                PowerRow(
                    method=method,
                    copies=copies,
                    level=level,
                    n_sets=len(rows),
                    n_rejected=n_rejected,
                    low=low,
                    high=high,
                    median_log10_p=statistics.median(row.log10_p for row in rows),
                    mean_effect=statistics.fmean(effects) if effects else None,
                )
            )
    return table


def print_power(
    models: Sequence[ModelResult], table: Sequence[PowerRow], console: Console
) -> None:
    """What was made, and a line a test and duplication count."""
    first = models[0]
    planted = statistics.fmean(model.n_canary_tokens for model in models)
    console.print(
        f"{len(models)} models of {first.n_parameters:,} parameters, "
        f"{first.n_tokens:,} tokens each, {planted / first.n_tokens:.0%} planted, "
        f"last loss {statistics.fmean(model.loss for model in models):.2f}"
    )
    if not table:
        return
    header = ("test", "copies", "sets", *(f"p <= {at:g} (95 %)" for at in LEVELS))
    cells = {(row.method, row.copies, row.level): row for row in table}
    lines = []
    for method, copies in dict.fromkeys((row.method, row.copies) for row in table):
        found = [cells[method, copies, level] for level in LEVELS]
        effect = found[0].mean_effect
        shares = (
            f"{row.n_rejected / row.n_sets:.2f} ({row.low:.2f}-{row.high:.2f})"
            for row in found
        )
        p = 10.0 ** found[0].median_log10_p
        median = f"{p:.3f}" if p >= 1e-3 else f"{p:.0e}"
        end = "" if effect is None else f"{effect:+.3f}"
        lines.append([method, str(copies), str(found[0].n_sets), *shares, median, end])
    console.print(bare_table((*header, "median p", "effect"), lines, gap=2))
