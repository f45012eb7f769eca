"""`jaxcontam replicate`: does a model write instances of a benchmark by heart?"""

import dataclasses
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.amounts import amount, counted, duration_words
from jaxcontam.arguments import path_word
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_bar, waiting_for
from jaxcontam.proof.outcome import print_table
from jaxcontam.proof.publish import shown
from jaxcontam.replication.design import (
    BLEURT,
    MEASURES,
    ReplicationDesign,
    ReplicationPlan,
    check_reference,
    plan_replication,
)
from jaxcontam.replication.judges import (
    OWN_PROMPT,
    JudgePrompt,
    load_judge_prompt,
)
from jaxcontam.replication.page import (
    COMMAND,
    replication_sentences,
    replication_tables,
    replication_words,
)
from jaxcontam.replication.recorded import (
    is_filled,
    read_recorded,
    read_sheet,
    recorded_partition,
    sheet_text,
)
from jaxcontam.replication.run import (
    ReplicationAnalysis,
    ask,
    judged_by,
    labelled_by,
    measures_of,
    opened,
    room,
)
from jaxcontam.reports.flags import (
    DtypeFlags,
    ReportFlags,
    SpendingFlags,
    check_references,
    flag_of,
    flags_of,
    in_order,
)
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.report_files import make_folder, replace_bytes
from jaxcontam.scoring.api.address import PREFIX, Body, parse_api
from jaxcontam.scoring.api.budget import Spending, estimate
from jaxcontam.scoring.api.chat import N_RANDOM, PATH, answer_seed, chat_body
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import (
    PromptedModel,
    ServerSettings,
    open_judge,
    served_info,
    served_name,
)
from jaxcontam.terminal import Terminal

_LOCAL = "local"
# Flags of the run itself; all others say how a model is asked.
_WITH_RECORDED = {
    *("recorded", "control", "fields", "compare", "judge", "judge_prompt"),
    *("concurrency", "budget", "price", "retry_refused", "seed", "out", "json"),
}
_bar = functools.partial(progress_bar, unit="answers/s")

JOURNAL_NAME = "requests.jsonl"
"""Finished answers under `--out`, from which a rerun resumes."""

SHEET_NAME = "annotate.csv"
"""Blind sheet under `--out` for people's labels."""


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Replicate(SpendingFlags, DtypeFlags, ReportFlags, ReplicationDesign):
    """Ask a model for the rest of instances, and see whether it copies them.

    Examples:
        jaxcontam replicate MODEL_DIR rte.jsonl --task nli --dataset-name RTE:dev
        # the price
        jaxcontam replicate api:https://host/v1#NAME ag_news.csv --dry-run
        # for more than suspected
        jaxcontam replicate MODEL_DIR old.txt --control new.txt --reference OLD_DIR
        jaxcontam replicate MODEL_DIR lines.txt --task plain  # a base model
        # judge completions made elsewhere
        jaxcontam replicate --recorded completions.csv
    """

    model: Positional[str | None] = None
    """Model directory, hub name, or api:URL#NAME; left out with --recorded."""
    benchmark: Positional[Path | None] = None
    """File of the partition: .jsonl, .json, .csv, .tsv or .txt."""
    reference: str | None = None
    """Model that has seen neither BENCHMARK nor --control, such as an older one or the
    base (as MODEL): it gets the same prompts. Without one copies are at most
    suspected."""
    recorded: Path | None = None
    """Judge completions made elsewhere: a .csv with a row per instance."""
    judge: tuple[str, ...] = (_LOCAL,)
    """local; in addition a chat model api:URL#NAME, which then decides; and a sheet of
    people's labels, annotate.csv of an earlier run, to report agreement."""
    judge_prompt: Path | None = None
    """Other words for the chat model that judges: a .txt file with {reference} and
    {candidate}."""
    retry_refused: bool = False
    """Repeat requests that a server refused in an earlier run."""
    dry_run: bool = False
    """Print the tokens and the cost of the run; send nothing."""

    def __post_init__(self) -> None:
        ReplicationDesign.__post_init__(self)
        self.check_spending()
        super().__post_init__()
        if self.recorded is not None:
            self._check_recorded()
        elif self.model is None or self.benchmark is None:
            raise InputError(
                "no model and benchmark", hint="name both, or give --recorded FILE.csv"
            )
        elif self.reference is not None:
            check_reference(self)
        if self._chat_judge is not None:
            parse_api(self._chat_judge, flag="--judge")
        elif self.judge_prompt is not None:
            raise InputError(
                "--judge-prompt needs a chat model",
                hint="name it: --judge api:URL#NAME",
            )
        _ = self._sheet, self._judge_prompt
        if self.task == "plain" and self._measures:
            raise InputError(
                f"--compare {self._measures[0]} compares two instructions, and --task "
                "plain has one"
            )
        folder = self.settings.get(BLEURT)
        if folder is not None and not Path(folder).is_dir():
            raise InputError(
                f"--compare bleurt:{folder}: no such folder",
                hint="see docs/how_to/replicate.md for how to make one",
            )

    @property
    def _measures(self) -> tuple[str, ...]:
        return tuple(name for name in self.settings if name in MEASURES)

    @property
    def _chat_judge(self) -> str | None:
        return _one([word for word in self.judge if word.startswith(PREFIX)])

    @property
    def _sheet(self) -> Path | None:
        """People's labels."""
        others = [
            word
            for word in self.judge
            if word != _LOCAL and not word.startswith(PREFIX)
        ]
        for word in others:
            if not (word.lower().endswith(".csv") or Path(word).exists()):
                raise InputError(
                    "--judge takes local, api:URL#NAME and a sheet of labels .csv, got "
                    f"{word!r}"
                )
        sheet = _one(others)
        return None if sheet is None else Path(sheet)

    @property
    def _judge_prompt(self) -> JudgePrompt:
        path = self.judge_prompt
        return OWN_PROMPT if path is None else load_judge_prompt(path)

    def _check_recorded(self) -> None:
        if self.model is not None:
            raise InputError(
                "--recorded uses no model", hint="leave out MODEL and BENCHMARK"
            )
        for field in dataclasses.fields(self):
            is_given = getattr(self, field.name) != field.default
            if is_given and field.name not in _WITH_RECORDED:
                beside = (
                    "put completions of a reference into the same file, as "
                    "generated_reference_completion"
                )
                raise InputError(
                    f"{flag_of(field.name)} does not go with --recorded",
                    hint=beside if field.name == "reference" else "",
                )
        for name in self.comparisons:
            raise InputError(f"--compare {name} does not go with --recorded")
        for word in self.fields:
            if not word.startswith("document="):
                raise InputError(f"--fields {word} does not go with --recorded")

    def run(self) -> int:
        """Ask, judge, write, print; 3 without a verdict, or if a server refused."""
        watch = Stopwatch()
        settings = ServerSettings(
            # A judge included.
            spending=Spending(self.limits),
            concurrency=self.concurrency,
            retry_refused=self.retry_refused,
        )
        if self.recorded is not None:
            found, out = self._read(self.recorded, watch)
        else:
            assert self.benchmark is not None
            plan = plan_replication(self.benchmark, self)
            # Faults of what is needed last are found before anything is paid for.
            if self._sheet is not None and not is_filled(self._sheet):
                raise InputError(f"{self._sheet}: no label is filled in")
            check_references(self)
            if self.dry_run:
                Terminal().say(self._planned(plan, settings))
                return 0
            measures = measures_of(self)
            models = self.model, self.reference
            with self._opened(plan, *models, settings) as asked:
                out = self._folder(plan, asked[0].name)
                make_folder(out)
                found = ask(plan, *asked, measures=measures, watch=watch, bar=_bar)
        if self._sheet is not None:
            found = labelled_by(found, self._sheet)
        make_folder(out)
        if self._chat_judge is not None:
            with open_judge(
                self._chat_judge,
                asked=(self.model, self.reference),
                journal=Journal(out / JOURNAL_NAME),
                settings=settings,
            ) as judge:
                found = judged_by(found, judge, prompt=self._judge_prompt, bar=_bar)
        words = [path_word(w) for w in (self.model, self.benchmark) if w is not None]
        found = dataclasses.replace(found, command=(COMMAND, *words, *flags_of(self)))
        write_sheet(found, out)
        # Answers and sheets serve every choice of flags, a report is of one.
        place = out
        if self.out is None:
            model = "" if found.model is None else found.model.fingerprint
            asked_of = (row.fingerprint for row in found.results)
            place = self.report_folder(COMMAND, out.name, model, *asked_of)
        shown(
            lambda: found.written(place),
            lambda console: _print(found, console),
            as_json=self.json,
        )
        return 3 if found.was_refused or not found.verdict else 0

    def _read(self, path: Path, watch: Stopwatch) -> tuple[ReplicationAnalysis, Path]:
        if self._measures and read_recorded(path).general is None:
            raise InputError(
                f"--compare {self._measures[0]} compares two instructions, and {path} "
                "has completions of one"
            )
        partition = recorded_partition(path, self, measures=measures_of(self), bar=_bar)
        found = ReplicationAnalysis(partition=partition, seed=self.seed, watch=watch)
        return found, self.folder(COMMAND, f"recorded-{partition.name}")

    def _folder(self, plan: ReplicationPlan, model: str) -> Path:
        """Folder of the answers of a model, and of its reference."""
        return self.folder(COMMAND, model, plan.drawn.fingerprint)

    def _opened(
        self,
        plan: ReplicationPlan,
        model: PromptedModel | str | None,
        reference: PromptedModel | str | None,
        settings: ServerSettings,
    ) -> AbstractContextManager[list[PromptedModel]]:
        def journal(name: str) -> Journal:
            return Journal(self._folder(plan, name) / JOURNAL_NAME)

        return opened(
            plan, model, reference, dtype=self.dtype, journal=journal, settings=settings
        )

    def _planned(self, plan: ReplicationPlan, settings: ServerSettings) -> str:
        """Requests of a run, counted by a run whose answers are made up."""
        budget = settings.spending.budget
        served = {
            word: parse_api(word, flag=flag)
            for word, flag in ((self.model, "MODEL"), (self.reference, "--reference"))
            if word is not None and word.startswith(PREFIX)
        }
        own, other = (
            PromptedModel(
                name=served_name(served[word]),
                completer=CountingCompleter(),
                info=served_info(served[word]),
            )
            if word in served
            else word
            for word in (self.model, self.reference)
        )
        counters = [CountingCompleter(word=word) for word in _TOKENS]
        said = []
        with self._opened(plan, own, other, settings) as models:
            asked = [
                dataclasses.replace(model, completer=one)
                for model, one in zip(models, counters, strict=False)
            ]
            found = ask(plan, *asked)
            journal = Journal(self._folder(plan, models[0].name) / JOURNAL_NAME)
            guided = [prompt for prompts in plan.guided for prompt in prompts]
            for word, model, one, prompts, before in zip(
                (self.model, self.reference),
                models,
                counters,
                (plan.completion_prompts, guided),
                ("", "The reference: "),
                strict=False,
            ):
                if word in served:
                    cost = estimate(
                        served[word], PATH, one.bodies, journal=journal, budget=budget
                    )
                    said.append(f"{before}{cost.words()}.")
                else:
                    n_asked = len(one.bodies)
                    said.append(before + _local_words(plan, model, prompts, n_asked))
        if self._chat_judge is not None:
            judge = parse_api(self._chat_judge, flag="--judge")
            judges = CountingCompleter()
            judged_by(found, judges, prompt=self._judge_prompt)
            most = estimate(judge, PATH, judges.bodies, budget=budget)
            words = (
                f"The judge: at most {counted(most.n_requests, 'request')}, "
                f"{most.prompt_tokens:,} prompt tokens and {most.completion_tokens:,} "
                "new ones"
            )
            if most.cost is not None:
                price = amount(most.cost, 4, padded=False)
                words += f", which cost at most about {price}"
            said.append(f"{words}.")
        if self.model in served:
            return " ".join([*said, "Nothing was sent."])
        return "\n".join(said)


def _one(words: Sequence[str]) -> str | None:
    """The one judge of a kind."""
    if len(words) > 1:
        raise InputError(f"--judge takes one of a kind, got {' and '.join(words)}")
    return next(iter(words), None)


def write_sheet(analysis: ReplicationAnalysis, out: Path) -> None:
    """Write the blind sheet; one that somebody may have filled in is never replaced."""
    arm = analysis.partition.arm
    texts, seed = (arm.instances, arm.guided), analysis.seed
    number, sheet = 1, out / SHEET_NAME
    while sheet.exists():
        try:
            if not is_filled(sheet):
                break
            read_sheet(sheet, *texts, seed=seed)
            return
        except InputError:
            # No sheet, or that of another run: what people wrote there stays.
            number += 1
            sheet = out / f"annotate-{number}.csv"
    replace_bytes(sheet, sheet_text(*texts, seed=seed).encode())
    if number > 1:
        Terminal(stderr=True).say(
            f"{out / SHEET_NAME} is not a sheet of this run and was left unchanged; "
            f"the sheet of this run is {sheet}"
        )


def _print(found: ReplicationAnalysis, console: Terminal) -> None:
    report = found.report
    words = replication_words(report)
    for table in replication_tables(report.results, words):
        if table.rows:
            print_table(table, console)
            console.print()
    console.say(*replication_sentences(report.results, words))


# About a token each, as estimates count them; a judge is asked about both.
_TOKENS = ("xxx ", "yyy ")


@dataclasses.dataclass(slots=True, eq=False)
class CountingCompleter:
    """Answers everything with a made-up word; `bodies` are what it was asked."""

    word: str = _TOKENS[0]
    name: str = ""
    bodies: list[Body] = dataclasses.field(default_factory=list)

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        n_samples: int = 1,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        progress: Progress | None = None,
    ) -> list[tuple[Completion, ...]]:
        """Answer with made-up words, and keep what was asked."""

        def body_of(prompt: str, sample: int) -> Body:
            own = answer_seed(seed, sample)
            return chat_body(prompt, own, max_tokens, temperature, stop)

        asked = [body_of(p, i) for p in prompts for i in range(n_samples)]
        if n_samples > 1 and temperature > 0:
            asked += [body_of("", -1 - i) for i in range(N_RANDOM)]
        self.bodies += asked
        # One word is no copy of a second piece, and so every answer is judged.
        answer = Completion(text=self.word * max_tokens)
        return [(answer,) * n_samples for _ in prompts]


def _local_words(
    plan: ReplicationPlan, model: PromptedModel, prompts: Sequence[str], n_asked: int
) -> str:
    from jaxcontam.scoring.completions import LocalCompleter

    assert model.read is not None and isinstance(model.completer, LocalCompleter)
    n_tokens = sum(len(model.read(prompt)) for prompt in prompts)
    n_more = n_asked - len(prompts)
    more = ""
    if n_more:
        more = f", and {counted(n_more, 'answer')} to further methods, not timed"
    most, _ = room(plan, model)
    with waiting_for("compiling and timing a few tokens"):
        seconds = model.completer.most_seconds(prompts, max_tokens=most)
    return (
        f"{counted(len(prompts), 'completion')} of prompts of "
        f"{counted(n_tokens, 'token')}, at most {most:,} new tokens each: at most "
        f"{duration_words(seconds)} at the speed of one batch now{more}. Nothing was "
        "sent."
    )
