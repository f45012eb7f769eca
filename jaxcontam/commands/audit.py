"""`jaxcontam audit`: was this benchmark's order in the training data?"""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxcontam.commands.audit_flags import check_audit, chosen_tests
from jaxcontam.commands.audit_scored import has_all_pairs, scored_rows, with_reference
from jaxcontam.commands.device_flags import DeviceFlags, open_for
from jaxcontam.commands.dry_run import dry_run
from jaxcontam.commands.flags import (
    first_token_choices,
    flags_of,
    store_of,
)
from jaxcontam.commands.order_checks import CheckedFiles, checked_files
from jaxcontam.commands.outcome import print_outcome
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
from jaxcontam.methods import direction, methods_to_score, options
from jaxcontam.methods.options import PlannedOptions, plan_options
from jaxcontam.methods.order_test import (
    NothingToPermuteError,
    PlannedTest,
    plan_test,
)
from jaxcontam.methods.version_method import VersionMethod
from jaxcontam.report.document import make_folder, write_report
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.results import DECLARED, RELEASED, Report
from jaxcontam.stats.effect import LEVEL
from jaxcontam.terminal import Terminal, json_text, visible
from jaxcontam.verdict import MIN_EFFECT, decide, screen

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Audit(DeviceFlags):
    """Test whether a model saw benchmarks in their published order.

    Examples:
        # what it costs and could find
        jaxcontam audit MODEL_DIR benchmark.jsonl --dry-run
        jaxcontam audit MODEL_DIR benchmark.jsonl  # p-value, verdict, report
        jaxcontam audit MODEL_DIR mmlu.jsonl --group-field subject
        # a served model
        jaxcontam audit api:https://host/v1#NAME benchmark.jsonl --tokenizer DIR
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, hub name org/name, or api:URL#NAME."""
    benchmark: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK...")
    ]
    """Files in published order: .jsonl, .json, .csv, .tsv, .txt, .parquet; or
    hf:ORG/NAME:SPLIT, lm_eval:TASK."""
    tests: str | None = None
    """Order tests, comma-separated, the deciding one first (see: methods)."""
    effort: Literal["quick", "standard", "thorough"] = "standard"
    """quick: direction, 2.5 passes; standard: and adjacency, 7; thorough: and
    stratified, 21. Direction decides unless the order is known to be random."""
    shuffled: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """You know that the published order was drawn at random: adjacency decides, and the
    report quotes you."""
    reference: str | None = None
    """Model that cannot have seen the file (as MODEL): it takes the same tests, and
    where it prefers the order, too, the file points forward by itself."""
    score_anyway: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Score files whose order fails its checks, too."""
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
        check_audit(self)

    @property
    def test_names(self) -> tuple[str, ...]:
        """Tests to run, the deciding one first."""
        known = self.shuffled or bool(self.seed_file)
        return chosen_tests(self.tests, effort=self.effort, known=known)

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
        command = ("audit", self.model, *map(str, self.benchmark), *flags_of(self))
        checked = self._checked(benchmarks, command)
        benchmarks = list(checked.benchmarks)
        if not benchmarks:
            found = {"unscored": [dataclasses.asdict(one) for one in checked.unscored]}
            if self.json:
                print(json_text(found))
            return found
        model = opened()
        out = self.out or default_out("audit", model.name, benchmarks)
        planned = self._planned(benchmarks, items, model)
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
        rows = scored_rows(planned, scorer, names=self.test_names, checked=checked)
        reference = None
        if self.reference is not None:
            # The target's weights are given back before the reference's are read.
            del scorer
            other = open_for(self, self.reference)
            reference = other.info
            of_other = scored_rows(
                self._planned(benchmarks, items, other),
                other.make_scorer(
                    store=store_of(self, out, other), batch_tokens=self.batch_tokens
                ),
                names=self.test_names,
                checked=checked,
                words="scoring orders with the reference",
            )
            rows = with_reference(rows, of_other, reference, seed=self.seed)
        results = with_notes([result for result, _ in rows], model)
        decided = decide(results, min_effect=self.min_effect)
        report = Report(
            command=command,
            seed=self.seed,
            started=started,
            wall_seconds=time.monotonic() - clock,
            model=model.info,
            device=model.device,
            versions=library_versions(),
            min_effect=self.min_effect,
            results=tuple(decided),
            screening=screen(decided),
            unscored=checked.unscored,
            reference=reference,
        )
        if not is_first():
            return {}
        document = write_report(report, [evidence for _, evidence in rows], out)
        page = write_page(document, out)
        if self.json:
            print(json_text(document))
        else:
            print_outcome(decided, report.command, page, Terminal())
        return document

    def _checked(
        self, benchmarks: list[Benchmark], command: tuple[str, ...]
    ) -> CheckedFiles:
        """What is left of the files once their order was looked at."""
        if self._tests_options_alone:
            return CheckedFiles(tuple(benchmarks), {}, {}, ())
        return checked_files(
            benchmarks,
            self.test_names[0],
            command,
            seed=self.seed,
            group_field=self.group_field,
            block_field=self.block_field,
            # What `options` asks does not depend on the order.
            score_anyway=self.score_anyway or self.tests_options,
        )

    def _planned(
        self,
        benchmarks: list[Benchmark],
        items: dict[str, list[Item]],
        model: "OpenModel",
    ) -> list[PlannedTest | PlannedOptions]:
        return [
            test
            for benchmark in benchmarks
            for test in self._plan(benchmark, items.get(benchmark.name), model)
        ]

    @property
    def tests_options(self) -> bool:
        """Whether options of items are moved, too."""
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
            elif self.shuffled:
                benchmark = dataclasses.replace(benchmark, order_provenance=DECLARED)
            if self.tests_options:
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
        methods = methods_to_score(self.test_names)
        if any(has_all_pairs(method) for method in methods):
            # Direction is read from these pairs.
            methods = [one for one in methods if one is not direction.METHOD]
        for method in methods:
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


def default_out(command: str, model: str, benchmarks: list[Benchmark]) -> Path:
    """`runs/COMMAND/MODEL-DIGEST`: the same input finds the same folder."""
    from jaxcontam.data.benchmark import fingerprint

    digest = fingerprint([benchmark.fingerprint for benchmark in benchmarks])
    return Path("runs") / command / f"{model}-{digest[7:15]}"
