"""`jaxcontam unlearning`: which texts survived unlearning."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from jaxcontam.analyses.finite import finite_scores
from jaxcontam.analyses.method_notes import report_words
from jaxcontam.analyses.saved import write_files
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.analyses.unlearning_audit import (
    DECIDING,
    TaskAudit,
    screened_audit,
)
from jaxcontam.analyses.unlearning_samples import (
    cosine_similarities,
    judge_similarities_of,
    rouge_similarities,
    sample_arms,
)
from jaxcontam.analyses.unlearning_texts import (
    ScreenDesign,
    Screened,
    check_pair,
    load_chunks,
    load_questions,
    run_name,
)
from jaxcontam.commands.flags import (
    STORE_DIR,
    ReportFlags,
    StoreFlags,
    check_positive,
    flags_of,
)
from jaxcontam.commands.publish import shown
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.methods.unlearning import BOUND, draw_arms
from jaxcontam.progress import progress_bar
from jaxcontam.report.outcome import print_table
from jaxcontam.report.report_files import make_folder
from jaxcontam.report.unlearning import (
    COMMAND,
    unlearning_rows,
    unlearning_sentences,
    unlearning_tables,
)
from jaxcontam.results import DeviceInfo, ModelInfo, Report
from jaxcontam.results.unlearning import QUESTIONS
from jaxcontam.scoring.api.address import ApiModel, key_from_environment, parse_api
from jaxcontam.terminal import Terminal

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Checkpoint

JOURNAL_NAME = "samples.jsonl"
"""Finished samples and answers under `--out`, from which a rerun resumes."""


_COLDEST = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlearning(StoreFlags, ReportFlags, ScreenDesign):
    """Find the texts that a model still knows after it was tuned to forget them.

    Examples:
        # what the model still knows
        jaxcontam unlearning ORIGINAL_DIR UNLEARNED_DIR book.txt
        # and still writes
        jaxcontam unlearning ORIGINAL_DIR UNLEARNED_DIR book.txt --complete
    """

    original: Positional[str]
    """The model before unlearning: directory or hub name."""
    unlearned: Positional[str]
    """The model after it."""
    texts: Positional[str | None] = None
    """What was to be forgotten: a .txt file (one text), a folder of them, or a table
    with a text a row."""
    k: float = 20.0
    """Percentage of least likely tokens that Min-K% keeps."""
    ratio: float = BOUND
    """A chunk is suspicious if the ratio of its two scores lies between 1 / RATIO and
    RATIO."""
    complete: bool = False
    """Let the unlearned model go on from the beginnings of suspicious chunks, and of
    others as a control, and compare with the text."""
    questions: str | None = None
    """Table of questions and answers on the texts: screen them, and sample answers."""
    samples: int = 20
    """Samples of each chunk or question."""
    new_tokens: int | None = None
    """Most tokens of a sample (default: those of the longest text to compare with, 64
    for answers, and at most half the context)."""
    temperature: float = 1.0
    """1 samples from the model's own distribution, 0 takes the likeliest token."""
    most: int = 200
    """Sample from at most N suspicious texts and N others."""
    embedding_model: str | None = None
    """Model whose mean hidden states are compared: cosine of sample and text."""
    judge: str | None = None
    """Chat model that grades each sample from 1 to 5: api:URL#NAME, key in API_KEY."""
    retry_refused: bool = False
    """Ask the judge again for what its server refused in an earlier run."""

    def __post_init__(self) -> None:
        check_positive(self, "limit", "words", "prompt_words")
        check_positive(self, "samples", "new_tokens", "most")
        super().__post_init__()
        if not 0 < self.k <= 100:
            raise InputError(f"--k must be above 0 and at most 100, got {self.k:g}")
        if not 1 < self.ratio < math.inf:
            raise InputError(f"--ratio must be above 1, got {self.ratio:g}")
        # Logits divided by less have no float32.
        if not (self.temperature == 0 or _COLDEST <= self.temperature < math.inf):
            raise InputError(
                f"--temperature must be 0, or at least {_COLDEST:g}, got "
                f"{self.temperature:g}"
            )
        if self.prompt_words >= self.words:
            raise InputError(
                f"--prompt-words must be below --words {self.words}, "
                f"got {self.prompt_words}"
            )
        if self.texts is None and self.questions is None:
            raise InputError("nothing to screen", hint="name TEXTS or give --questions")
        if self.texts is None and self.complete:
            raise InputError("--complete needs TEXTS", hint="answers need no flag")
        if not self._samples_at_all and (self.judge or self.embedding_model):
            raise InputError(
                "--judge and --embedding-model compare samples, and none are asked for",
                hint="give --complete or --questions",
            )
        if "{question}" not in self.template:
            raise InputError("--template must hold {question}")
        self._judge_model()

    @property
    def _samples_at_all(self) -> bool:
        return self.complete or self.questions is not None

    def run(self) -> int:
        """Score, sample, compare, write and print; 3 if the judge refused any, or 0."""
        watch = Stopwatch()
        tasks = self._load()
        judge = self._judge_model()
        api_key = None if judge is None else key_from_environment()
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.models.checkpoint import load_checkpoint, read_identity
        from jaxcontam.scoring.compilation_cache import keep_compiled
        from jaxcontam.scoring.local import device_info, model_info
        from jaxcontam.scoring.similarity_judge import judge_similarities

        keep_compiled()
        pair = read_identity(self.original), read_identity(self.unlearned)
        check_pair(*pair, tasks)
        out = self.folder(COMMAND, run_name(*pair, tasks))
        make_folder(out)
        checkpoint = load_checkpoint(self.original, dtype=self.dtype)
        before = model_info(checkpoint)
        original = self._scores(checkpoint, tasks, out, "original")
        # Two models at once may not fit.
        del checkpoint
        checkpoint = load_checkpoint(self.unlearned, dtype=self.dtype)
        after = model_info(checkpoint)
        unlearned = self._scores(checkpoint, tasks, out, "unlearned")
        journal = Journal(out / JOURNAL_NAME)
        audits = []
        for t, task in enumerate(tasks):
            audit = screened_audit(task, original[t], unlearned[t], self.ratio)
            if task.task == QUESTIONS or self.complete:
                audit = self._sampled(audit, checkpoint, journal)
            audits.append(audit)
        del checkpoint
        if self.embedding_model is not None:
            embedder = load_checkpoint(self.embedding_model, dtype=self.dtype)
            for audit in audits:
                if audit.sampled is not None:
                    audit.found.append(cosine_similarities(audit.sampled, embedder))
        if judge is not None:
            for audit in audits:
                if audit.sampled is not None:
                    with progress_bar(
                        f"judging {audit.task.task}", unit="answers/s"
                    ) as progress:
                        found = judge_similarities_of(
                            audit.task,
                            audit.sampled,
                            functools.partial(
                                judge_similarities,
                                judge,
                                journal=journal,
                                api_key=api_key,
                                retry_refused=self.retry_refused,
                                progress=progress,
                            ),
                        )
                    audit.found.append(found)
        document = self._publish(audits, watch, before, after, device_info(), out)
        return 3 if any(row.get("n_refused") for row in document["results"]) else 0

    def _judge_model(self) -> ApiModel | None:
        return None if self.judge is None else parse_api(self.judge, flag="--judge")

    def _load(self) -> list[Screened]:
        tasks = []
        if self.texts is not None:
            tasks.append(load_chunks(self.texts, self))
        if self.questions is not None:
            tasks.append(load_questions(self.questions, self))
        return tasks

    def _scores(
        self, checkpoint: "Checkpoint", tasks: list[Screened], out: Path, which: str
    ) -> list[np.ndarray]:
        """Min-K% and mean log-probability of each task's texts, `[N, 2]` each."""
        from jaxcontam.methods.membership.plan import score_texts
        from jaxcontam.methods.membership.text_model import text_model
        from jaxcontam.methods.membership.text_scores import LOSS
        from jaxcontam.methods.membership.token_scores import min_k_at

        model = text_model(
            checkpoint,
            store=self.store_in(out / STORE_DIR),
            batch_tokens=self.batch_tokens,
        )
        items = [item for task in tasks for item in task.items]

        def place(n: int) -> str:
            return f"{items[n].source}: the {which} model's log-probability"

        with finite_scores(place), progress_bar(f"scoring, {which}") as progress:
            table = score_texts(
                [item.text for item in items],
                [min_k_at(self.k / 100), LOSS],
                model,
                progress=progress,
            )
        ends = np.cumsum([len(task.items) for task in tasks])[:-1]
        return np.split(table.values, ends)

    def _sampled(
        self, audit: TaskAudit, checkpoint: "Checkpoint", journal: Journal
    ) -> TaskAudit:
        from jaxcontam.models.generation import Sampling

        scored_N = ~np.isnan(audit.ratios[DECIDING])
        usable_N = scored_N & np.array([item.has_truth for item in audit.task.items])
        arms = draw_arms(
            audit.suspicious(DECIDING), usable_N, most=self.most, seed=self.seed
        )
        with progress_bar(f"sampling {audit.task.task}", unit="texts/s") as progress:
            sampled = sample_arms(
                audit.task,
                arms,
                checkpoint,
                sampling=lambda new_tokens: Sampling(
                    n_samples=self.samples,
                    new_tokens=new_tokens,
                    temperature=self.temperature,
                    seed=self.seed,
                ),
                new_tokens=self.new_tokens,
                journal=journal,
                progress=progress,
            )
        return dataclasses.replace(
            audit, sampled=sampled, found=[rouge_similarities(sampled)]
        )

    def _publish(
        self,
        audits: list[TaskAudit],
        watch: Stopwatch,
        before: ModelInfo,
        after: ModelInfo,
        device: DeviceInfo,
        out: Path,
    ) -> dict[str, Any]:
        positionals = (self.original, self.unlearned)
        if self.texts is not None:
            positionals += (self.texts,)
        report = watch.report(
            (COMMAND, *positionals, *flags_of(self)),
            self.seed,
            (
                row
                for audit in audits
                for row in audit.results(
                    k=self.k, words=self.words, n_samples=self.samples, seed=self.seed
                )
            ),
            model=after,
            device=device,
            original=before,
        )
        rows = [row for audit in audits for row in audit.rows()]
        return shown(
            lambda: write_files(report, rows, out),
            lambda console: _print(report, console),
            as_json=self.json,
        )


def _print(report: Report, console: Terminal) -> None:
    words = report_words(report)
    found, measures = unlearning_rows(report)
    for table in unlearning_tables(found, measures, words):
        print_table(table, console)
    console.print()
    console.say(*unlearning_sentences([*found, *measures], words))
