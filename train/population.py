"""Train and test a population of small contaminated models in one call.

Question: how often does an order test find a set that a model saw 0, 1, 2, 4 or 10
times? Command: `python -m train.population --corpus DOCS.jsonl --sets POOL.jsonl`.
Hardware: every core makes its own models, one after the other; on an accelerator
models are trained side by side. A killed run resumes.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from jaxcontam.cli.main import EXIT_PARTIAL, run_module
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.data.templates import typed_newlines
from jaxcontam.errors import InputError
from jaxcontam.progress import progress_bar
from jaxcontam.reports.flags import check_positive, check_seed, flags_of
from jaxcontam.reports.report import library_versions, utc_now
from jaxcontam.reports.report_files import make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name, keep_compiled
from jaxcontam.sources import source_digest
from jaxcontam.terminal import Terminal
from train.config import PRESETS, ConfigFlags
from train.plan import PlannedSet, check_sets
from train.population_job import (
    ModelResult,
    finished_result,
    open_maker,
    power_rows,
    print_power,
)
from train.population_models import Job, TrainedModel, trained_together
from train.population_plan import Design, Texts, draw_sets, plan_model, read_pool
from train.population_workers import Failure, keep_freed_memory, n_cores, over_processes
from train.run_folder import code_version
from train.sources import corpus_digest, open_corpus
from train.tokenizer import prefix_id, tokenizer_digest, train_tokenizer
from train.tokens import token_cache

TABLE_NAME = "population.json"

# Models side by side on one accelerator: some 2 GB at 0.16 M parameters.
_TOGETHER = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Population(ConfigFlags):
    """Train small models with test sets planted in their data, and test every set."""

    corpus: tuple[str, ...]
    """Background: files or folders of text, tfds:NAME/SPLIT or hf:NAME:SPLIT."""
    sets: tuple[Path, ...]
    """Pool of examples, one per line: each model samples disjoint sets from it."""
    copies: tuple[int, ...] = (0, 1, 2, 4, 10)
    """Duplication counts: one set for each number."""
    n_examples: int = 120
    """Examples in each set."""
    models: int = 40
    """Number of models."""
    preset: str | None = "0.16m"
    """Shape of the models."""
    steps: int | None = None
    """Training steps (default: as much background as planted text)."""
    background_tokens: int | None = None
    """Or this much background beside what is planted."""
    max_example_tokens: int | None = None
    """Longer examples are cut, separator included (default: two fit the context)."""
    separator: str = "\n"
    """Text after each example."""
    test: Literal["adjacency", "none"] = "adjacency"
    """Order test of every set."""
    weights: bool = True
    """Keep models, sets and streams; --no-weights keeps manifests and results."""
    form: Literal["auto", "scan", "vmap"] = "auto"
    """One model after the other in each process, or models side by side."""
    processes: int | None = None
    """Processes that train models, or analyse those trained side by side (default:
    one a core)."""
    together: int = _TOGETHER
    """Models side by side of the form vmap."""
    seed: int = 0
    """Seed of the first model; the others count up."""
    out: Path = Path("runs/population")
    """Folder for the models and population.json; finished models are kept."""
    tiny: bool = False
    """A pulse run of seconds, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models", "processes", "together", "steps")
        check_positive(self, "n_examples", "background_tokens")
        ConfigFlags.__post_init__(self)
        if self.steps is not None and self.background_tokens is not None:
            raise InputError("--steps and --background-tokens exclude each other")
        if not self.copies or min(self.copies) < 0:
            raise InputError(
                "--copies must be numbers of at least 0, such as 0 1 2 4 10"
            )

    def run(self) -> int:
        """Train what is missing, print the table; returns the exit code."""
        started, clock = utc_now(), time.monotonic()
        console = Terminal(highlight=False)
        job = self._prepare(self._pool())
        seeds = [self.seed + i for i in range(self.models)]
        found = {seed: finished_result(job, seed) for seed in seeds}
        missing = [seed for seed in seeds if found[seed] is None]
        if len(missing) < len(seeds):
            n_kept = len(seeds) - len(missing)
            print(f"keeping {n_kept} finished models in {self.out}", file=sys.stderr)
        failures: dict[int, Failure] = {}
        seconds: dict[int, float] = {}
        making = time.monotonic()
        with progress_bar("training") as progress:
            total = len(missing) * job.design.n_tokens
            for seed, outcome in self._made(job, missing):
                if isinstance(outcome, ModelResult):
                    found[seed] = outcome
                    seconds[seed] = outcome.cpu_seconds
                    progress(len(seconds) * job.design.n_tokens, total)
                else:
                    failures[seed] = outcome
                    print(f"model {seed}: {outcome.reason}", file=sys.stderr)
        making = time.monotonic() - making
        for seed in missing:
            if found[seed] is None and seed not in failures:
                failures[seed] = Failure("not tried: the first ones all failed")
        results = [result for seed in seeds if (result := found[seed]) is not None]
        table = power_rows(results)
        document = {
            "command": ["train.population", *flags_of(self)],
            "started": started,
            "wall_seconds": time.monotonic() - clock,
            "making_seconds": making,
            "n_made": len(seconds),
            "cpu": cpu_name(),
            "device": job.device,
            "versions": library_versions(),
            "code": job.code,
            "corpus_digest": job.texts.documents.corpus_digest,
            "pool_digest": job.pool_digest,
            "design": dataclasses.asdict(job.design),
            "models": [
                {
                    name: value
                    for name, value in dataclasses.asdict(result).items()
                    if name != "rows"
                }
                for result in results
            ],
            "failures": [
                {"seed": seed, **dataclasses.asdict(failure)}
                for seed, failure in failures.items()
            ],
            "power": [dataclasses.asdict(row) for row in table],
        }
        text = json.dumps(document, indent=1) + "\n"
        replace_bytes(self.out / TABLE_NAME, text.encode())
        if results:
            print_power(results, table, console)
        if seconds:
            rate = 3600 * len(seconds) / making
            mean = statistics.fmean(seconds.values())
            console.print(
                f"{len(seconds)} models made in {making:.0f} s: {rate:,.0f} an hour, "
                f"{mean:.2f} s of CPU each"
            )
        console.print(f"models: {self.out}")
        if failures:
            print(
                f"{len(failures)} of {len(missing)} models failed; run the same "
                "command again to try these alone",
                file=sys.stderr,
            )
            return EXIT_PARTIAL
        return 0

    def _pool(self) -> list[str]:
        """Every example once.

        Raises:
            InputError: If a file cannot be read.
        """
        pool: dict[str, None] = {}
        for path in self.sets:
            benchmark = load_benchmark(path)
            check_sets([PlannedSet(benchmark=benchmark, copies=0)])
            pool.update(dict.fromkeys(benchmark.texts))
        return list(pool)

    def _prepare(self, pool: Sequence[str]) -> Job:
        """Tokenise once for all processes; refuse an impossible design."""
        config = self.configured(PRESETS["pulse"] if self.tiny else None)
        # Pair tests read one example after another one, and a prefix token.
        most = self.max_example_tokens or (config.decoder.context - 1) // 2
        design = Design(
            name="set",
            config=config,
            n_examples=24 if self.tiny else self.n_examples,
            copies=self.copies,
            n_steps=1,
            max_example_tokens=most,
            separator=typed_newlines(self.separator),
        )
        draw_sets(design, pool, seed=self.seed)
        corpus = open_corpus(self.corpus, leave_out=self.out)
        folder = self.out / "texts"
        make_folder(folder)
        tokenizer = train_tokenizer(corpus, config.decoder.vocab_size)
        plain = plain_tokenizer(tokenizer.backend_tokenizer)
        with progress_bar("tokenising", unit="bytes/s") as progress:
            cache = token_cache(corpus, plain, folder, progress=progress)
        texts = read_pool(
            plain,
            prefix_id(tokenizer),
            cache,
            pool,
            max_example_tokens=design.max_example_tokens,
            separator=design.separator,
        )
        design = dataclasses.replace(design, n_steps=self._n_steps(design, texts))
        plan_model(design, texts, seed=self.seed)
        return Job(
            design=design,
            out=self.out.absolute(),
            test=None if self.test == "none" else self.test,
            weights=self.weights,
            code=code_version(),
            sources=source_digest("train.population_models"),
            tokenizer=tokenizer,
            texts=texts,
            tokenizer_digest=tokenizer_digest(plain),
            pool_digest=corpus_digest(pool),
            device=self._device(),
        )

    def _n_steps(self, design: Design, texts: Texts) -> int:
        """Steps of every model; one number, so that they share what is compiled."""
        if self.steps is not None:
            return self.steps
        mean = float(texts.encoded.lengths.mean())
        planted = round(sum(design.copies) * design.n_examples * mean)
        background = self.background_tokens
        if background is None:
            if not planted:
                raise InputError(
                    "nothing is planted", hint="say how long to train with --steps"
                )
            background = planted
        return -(-(planted + background) // design.config.step_tokens)

    def _device(self) -> str:
        """Form and kind of device, part of each model's key."""
        if self.form == "scan":
            return f"scan on {cpu_name()}"
        import jax

        backend = jax.default_backend()
        if self.form == "auto" and backend == "cpu":
            return f"scan on {cpu_name()}"
        kind = cpu_name() if backend == "cpu" else jax.devices()[0].device_kind
        return f"vmap on {kind}"

    def _made(
        self, job: Job, seeds: Sequence[int]
    ) -> Iterator[tuple[int, ModelResult | Failure]]:
        """Models in the order in which they are finished."""
        tasks: Iterable[int | TrainedModel] = seeds
        if not job.is_scan:
            keep_compiled()
            size = self.together
            chunks = [seeds[i : i + size] for i in range(0, len(seeds), size)]
            tasks = trained_together(job, chunks)
        n_processes = min(self.processes or n_cores(), len(seeds))
        made = over_processes(open_maker, job, tasks, n_processes=n_processes)
        for task, outcome in made:
            yield task if isinstance(task, int) else task.seed, outcome


def main() -> int:
    """Command line of `python -m train.population`."""
    keep_freed_memory()
    return run_module(Population, "train.population")


if __name__ == "__main__":
    sys.exit(main())
