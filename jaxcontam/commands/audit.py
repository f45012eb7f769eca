"""`jaxcontam audit`: was this benchmark's order in the training data?"""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxcontam.commands.device_flags import DeviceFlags, check_device_flags, open_for
from jaxcontam.commands.dry_run import dry_run
from jaxcontam.commands.flags import (
    check_positive,
    check_shared_flags,
    check_store_flags,
    first_token_choices,
    flags_of,
    store_of,
)
from jaxcontam.commands.outcome import print_outcome
from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.publish import with_notes
from jaxcontam.commands.report import write_page
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.blocks import (
    as_blocks,
    block_starts,
    encoded_blocks,
    whole_blocks,
)
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.options import Item, read_items
from jaxcontam.data.release import check_release
from jaxcontam.data.templates import typed_newlines
from jaxcontam.errors import InputError
from jaxcontam.hosts import is_first
from jaxcontam.methods import methods_to_score, options, two_min
from jaxcontam.methods.options import PlannedOptions, options_result, plan_options
from jaxcontam.methods.order_test import (
    NothingToPermuteError,
    PlannedTest,
    order_result,
    plan_test,
    score_test,
)
from jaxcontam.methods.two_min import combined_results
from jaxcontam.methods.version_method import VersionMethod
from jaxcontam.report.document import make_folder, write_report
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.results import RELEASED, Evidence, OrderResult, Pretest, Report
from jaxcontam.stats.effect import LEVEL
from jaxcontam.stats.pretests import columns, pretest_battery
from jaxcontam.terminal import Terminal, json_text, visible
from jaxcontam.verdict import MIN_EFFECT, decide, screen

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel, SequenceScorer

# The primary test comes first.
_TESTS_OF_EFFORT: dict[str, tuple[str, ...]] = {
    "quick": ("reversal",),
    "standard": ("adjacency", "reversal"),
    "thorough": ("two_min", "reversal"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Audit(DeviceFlags):
    """Test whether a model saw benchmarks in their published order."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, hub name org/name, or api:URL#NAME."""
    benchmark: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK...")
    ]
    """Files in published order: .jsonl, .json, .csv, .tsv, .txt, .parquet; or
    hf:ORG/NAME:SPLIT, lm_eval:TASK."""
    tests: str | None = None
    """Order tests, comma-separated; the first one decides (see: methods)."""
    effort: Literal["quick", "standard", "thorough"] = "standard"
    """quick: reversal, 2 passes; standard: adjacency, 8 passes, reversal beside;
    thorough: adjacency over longer strata and stratified, 22 passes."""
    n_orders: int | None = None
    """Random orders a stratum (default: 9; permutation 99; sharded_t 49; options 3;
    at most, permutation_sequential 5,114 and permutation_besag_clifford 1,999)."""
    first_tokens: str = "all"
    """Of adjacency: tokens of each example that count, after those that all examples
    share: all, a number, or auto (the best of several, at the price of p >= 1e-5)."""
    group_field: str | None = None
    """Permute only within equal values of this field."""
    block_field: str | None = None
    """Permute whole runs of equal values of this field, such as a shared passage."""
    template: str | None = None
    r"""Text of an example, such as "Question: {question}\nAnswer: {answer}"."""
    text_field: str | None = None
    """Field that is the text (default: the raw line)."""
    separator: str = "\n"
    """Text after each example, as in the training data."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""
    limit: int | None = None
    """Take the first so many examples, never a sample."""
    options_field: str | None = None
    """Of --tests options: field of the options, or several: A,B,C,D (default: known
    names)."""
    answer_field: str | None = None
    """Of --tests options: field that tells the right option (default: known names)."""
    fix_answer: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of --tests options: right options keep their places, only wrong ones move."""
    seed_file: tuple[Path, ...] = ()
    """Of files made by `jaxcontam release`: the secret seed of each, in their order."""
    min_effect: float = MIN_EFFECT
    """Nats a boundary that `no evidence` must have been able to find."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the operands of matrix products; bfloat16 is faster, and not as exact."""
    batch_tokens: int | None = None
    """Tokens a batch (default: by device)."""
    seed: int = 0
    """Seeds every random choice."""
    out: Path | None = None
    """Folder for the report (default: runs/audit/MODEL-DIGEST)."""
    store: Path | None = None
    """Folder of scores, from which a rerun goes on (default: OUT/store)."""
    no_store: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep no scores."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Say what would be scored, how long it takes and what it could find; no scores."""
    price_per_hour: float | None = None
    """Price of the device an hour, for the cost in --dry-run."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        if self.n_orders is not None and self.n_orders < 1:
            raise InputError(
                f"--n-orders must be at least 1, got {self.n_orders}",
                hint="9 is the default; each more costs one pass over the data",
            )
        check_positive(self, "batch_tokens", "max_example_tokens", "limit")
        check_shared_flags(self.seed, self.min_effect)
        check_store_flags(self.store, self.no_store)
        check_device_flags(self, self.model)
        if self.price_per_hour is not None and not self.price_per_hour >= 0:
            raise InputError(
                f"--price-per-hour must be at least 0, got {self.price_per_hour}"
            )
        if not self.benchmark:
            raise InputError("no benchmark file", hint="name at least one")
        methods_to_score(self.test_names)
        first_token_choices(self.first_tokens)
        if self.group_field is not None and self.group_field == self.block_field:
            raise InputError(
                "--group-field and --block-field name the same field",
                hint="blocks of one value hold no group to permute within",
            )
        if self.block_field is not None and self._tests_options:
            raise InputError("--block-field does not go with --tests options")
        if self.seed_file and len(self.seed_file) != len(self.benchmark):
            raise InputError(
                f"--seed-file names {len(self.seed_file)} files for "
                f"{len(self.benchmark)} benchmarks",
                hint="it takes one for each, in their order",
            )
        for name in ("options_field", "answer_field", "fix_answer"):
            if getattr(self, name) and not self._tests_options:
                flag = "--" + name.replace("_", "-")
                raise InputError(f"{flag} goes with --tests options")
        if self._tests_options and self.text_field is not None:
            raise InputError(
                "--text-field leaves no options to --tests options",
                hint='use --template, such as "{question}\\n{options}"',
            )

    @property
    def test_names(self) -> tuple[str, ...]:
        """Tests to run, the deciding one first."""
        if self.tests is None:
            return _TESTS_OF_EFFORT[self.effort]
        return tuple(dict.fromkeys(name.strip() for name in self.tests.split(",")))

    @property
    def _deciding(self) -> tuple[str, ...]:
        """The test that decides, or the parts that it is made of."""
        return tuple(method.name for method in methods_to_score(self.test_names[:1]))

    def run(self) -> dict:
        """Load, plan, score, decide, write and print; returns the report.

        A dry run returns its estimate instead, processes after the first nothing.
        """
        return self.run_on(lambda: open_for(self, self.model, plan_only=self.dry_run))

    def run_on(self, opened: Callable[[], "OpenModel"]) -> dict:
        """`run` on the model that `opened` gives once the files were read."""
        started, clock = utc_now(), time.monotonic()
        benchmarks, items = self._load()
        names = [benchmark.name for benchmark in benchmarks]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise InputError(
                f"two benchmarks are named {min(repeated)!r}", hint="rename a file"
            )
        if self.group_field is not None:
            # A slip is told before a model loads.
            for benchmark in benchmarks:
                benchmark.groups(self.group_field)
        model = opened()
        out = self.out or default_out("audit", model.name, benchmarks)
        planned = [
            test
            for benchmark in benchmarks
            for test in self._plan(benchmark, items.get(benchmark.name), model)
        ]
        if not self.dry_run:
            make_folder(out)
        scorer = model.make_scorer(
            store=store_of(self, out, model), batch_tokens=self.batch_tokens
        )
        if self.dry_run:
            return dry_run(
                planned,
                scorer,
                price_per_hour=self.price_per_hour,
                budget=self.api_options.limits,
                as_json=self.json,
            )
        results, evidence = self._score(planned, benchmarks, scorer, model)
        decided = decide(results, min_effect=self.min_effect)
        report = Report(
            command=("audit", self.model, *map(str, self.benchmark), *flags_of(self)),
            seed=self.seed,
            started=started,
            wall_seconds=time.monotonic() - clock,
            model=model.info,
            device=model.device,
            versions=library_versions(),
            min_effect=self.min_effect,
            results=tuple(decided),
            screening=screen(decided),
        )
        if not is_first():
            return {}
        document = write_report(report, evidence, out)
        page = write_page(document, out)
        if self.json:
            print(json_text(document))
        else:
            print_outcome(decided, report.command, page, Terminal())
        return document

    @property
    def _tests_options(self) -> bool:
        return options.METHOD.name in self.test_names

    def _load(self) -> tuple[list[Benchmark], dict[str, list[Item]]]:
        """Benchmarks with their texts, and the items of each for `options`."""
        benchmarks, items = [], {}
        for i, path in enumerate(self.benchmark):
            benchmark = load_benchmark(
                path,
                template=None if self._tests_options_alone else self.template,
                text_field=self.text_field,
                limit=None if self.block_field else self.limit,
            )
            if self.block_field is not None:
                limit = len(benchmark) if self.limit is None else self.limit
                benchmark = whole_blocks(benchmark, self.block_field, limit)
            if self.seed_file:
                check_release(path, self.seed_file[i])
                benchmark = dataclasses.replace(benchmark, order_provenance=RELEASED)
            if self._tests_options:
                items[benchmark.name] = read_items(
                    load_benchmark(path, limit=self.limit),
                    options_field=self.options_field,
                    answer_field=self.answer_field,
                    template=self.template,
                )
            benchmarks.append(benchmark)
        return benchmarks, items

    @property
    def _tests_options_alone(self) -> bool:
        # Its template may hold {options}, which no field is called.
        return self.test_names == (options.METHOD.name,)

    def _plan(
        self,
        benchmark: Benchmark,
        items: list[Item] | None,
        model: "OpenModel",
    ) -> list[PlannedTest | PlannedOptions]:
        encoded = encode_examples(
            model.tokenizer,
            benchmark.texts,
            separator=typed_newlines(self.separator),
            max_example_tokens=self.max_example_tokens,
        )
        if self.block_field is not None:
            starts = block_starts(benchmark, self.block_field)
            benchmark = as_blocks(benchmark, starts)
            encoded = encoded_blocks(encoded, starts)
        planned = []
        for method in methods_to_score(self.test_names):
            if isinstance(method, VersionMethod):
                assert items is not None
                test = plan_options(
                    benchmark,
                    items,
                    model.tokenizer,
                    prefix_id=model.prefix_id,
                    seed=self.seed,
                    n_orders=self.n_orders,
                    fixed=self.fix_answer,
                )
            else:
                try:
                    test = plan_test(
                        benchmark,
                        encoded,
                        method,
                        prefix_id=model.prefix_id,
                        context=model.context,
                        seed=self.seed,
                        n_orders=self.n_orders,
                        group_field=self.group_field,
                        block_field=self.block_field,
                        first_tokens=first_token_choices(self.first_tokens),
                        # Holm may multiply a p-value by the number of benchmarks.
                        level=LEVEL / len(self.benchmark),
                    )
                except NothingToPermuteError as e:
                    if method.name in self._deciding:
                        raise
                    words = visible(f"jaxcontam: warning: left out: {e}")
                    print(words, file=sys.stderr)
                    continue
            planned.append(test)
        return planned

    def _score(
        self,
        planned: list[PlannedTest | PlannedOptions],
        benchmarks: list[Benchmark],
        scorer: "SequenceScorer",
        model: "OpenModel",
    ) -> tuple[list[OrderResult], list[Evidence | None]]:
        pretests = {
            benchmark.name: self._pretests(benchmark)
            for benchmark in benchmarks
            if not self._tests_options_alone
        }
        total, done = sum(test.n_targets for test in planned), 0
        results: list[OrderResult] = []
        evidence: list[Evidence | None] = []
        with progress_bar("scoring orders") as progress:
            for test in planned:
                scored = score_test(
                    test, scorer, lambda now, _, done=done: progress(done + now, total)
                )
                done += test.n_targets
                evidence.append(scored.evidence)
                primary = test.method.name == self.test_names[0]
                if isinstance(test, PlannedOptions):
                    results.append(options_result(test, scored, primary=primary))
                    continue
                results.append(
                    order_result(
                        test,
                        scored,
                        primary=primary,
                        pretests=pretests[test.benchmark.name],
                    )
                )
        combined = []
        if two_min.METHOD.name in self.test_names:
            is_primary = two_min.METHOD.name == self.test_names[0]
            combined = combined_results(results, primary=is_primary)
        rows = with_notes([*results, *combined], model)
        return rows, evidence + [None] * len(combined)

    def _pretests(self, benchmark: Benchmark) -> tuple[Pretest, ...]:
        if self.block_field is not None:
            starts = block_starts(benchmark, self.block_field)
            benchmark = as_blocks(benchmark, starts)
        groups = (
            None if self.group_field is None else benchmark.groups(self.group_field)
        )
        return pretest_battery(
            benchmark.texts, columns(benchmark.rows), seed=self.seed, groups=groups
        )


def default_out(command: str, model: str, benchmarks: list[Benchmark]) -> Path:
    """`runs/COMMAND/MODEL-DIGEST`: the same input finds the same folder."""
    from jaxcontam.data.benchmark import fingerprint

    digest = fingerprint([benchmark.fingerprint for benchmark in benchmarks])
    return Path("runs") / command / f"{model}-{digest[7:15]}"
