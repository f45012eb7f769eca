"""`jaxcontam replicate`: does a model write instances of a benchmark by heart?"""

import dataclasses
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from jaxcontam.amounts import amount, counted, duration_words
from jaxcontam.arguments import path_word
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_bar, waiting_for
from jaxcontam.proof.outcome import print_table
from jaxcontam.proof.publish import shown
from jaxcontam.replication.design import (
    ReplicationPlan,
    plan_replication,
)
from jaxcontam.replication.flags import Replicate
from jaxcontam.replication.judges import OWN_PROMPT, JudgePrompt, load_judge_prompt
from jaxcontam.replication.page import (
    COMMAND,
    replication_sentences,
    replication_tables,
    replication_words,
)
from jaxcontam.replication.recorded import (
    SHEET_NAME,
    is_filled,
    kept_sheet,
    read_recorded,
    recorded_partition,
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
    check_references,
    flags_of,
)
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.report_files import make_folder
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

_bar = functools.partial(progress_bar, unit="answers/s")

JOURNAL_NAME = "requests.jsonl"
"""Finished answers under `--out`, from which a rerun resumes."""


def replicate(command: Replicate) -> int:
    """Ask, judge, write, print; 3 without a verdict, or if a server refused."""
    watch = Stopwatch()
    settings = ServerSettings(
        # A judge included.
        spending=Spending(command.limits),
        concurrency=command.concurrency,
        retry_refused=command.retry_refused,
    )
    if command.recorded is not None:
        found, out = _read(command, command.recorded, watch)
    else:
        assert command.benchmark is not None
        plan = plan_replication(command.benchmark, command)
        # Faults of what is needed last are found before anything is paid for.
        if command.sheet is not None and not is_filled(command.sheet):
            raise InputError(f"{command.sheet}: no label is filled in")
        check_references(command)
        if command.dry_run:
            Terminal().say(_planned(command, plan, settings))
            return 0
        measures = measures_of(command)
        models = command.model, command.reference
        with _opened(command, plan, *models, settings) as asked:
            out = _folder(command, plan, asked[0].name)
            make_folder(out)
            found = ask(plan, *asked, measures=measures, watch=watch, bar=_bar)
    if command.sheet is not None:
        found = labelled_by(found, command.sheet)
    make_folder(out)
    if command.chat_judge is not None:
        with open_judge(
            command.chat_judge,
            asked=(command.model, command.reference),
            journal=Journal(out / JOURNAL_NAME),
            settings=settings,
        ) as judge:
            found = judged_by(found, judge, prompt=_judge_prompt(command), bar=_bar)
    words = [path_word(w) for w in (command.model, command.benchmark) if w is not None]
    found = dataclasses.replace(found, command=(COMMAND, *words, *flags_of(command)))
    write_sheet(found, out)
    # Answers and sheets serve every choice of flags, a report is of one.
    place = out
    if command.out is None:
        model = "" if found.model is None else found.model.fingerprint
        asked_of = (row.fingerprint for row in found.results)
        place = command.report_folder(COMMAND, out.name, model, *asked_of)
    shown(
        lambda: found.written(place),
        lambda console: _print(found, console),
        as_json=command.json,
    )
    return 3 if found.was_refused or not found.verdict else 0


def _judge_prompt(command: Replicate) -> JudgePrompt:
    path = command.judge_prompt
    return OWN_PROMPT if path is None else load_judge_prompt(path)


def _read(
    command: Replicate, path: Path, watch: Stopwatch
) -> tuple[ReplicationAnalysis, Path]:
    if command.measures and read_recorded(path).general is None:
        raise InputError(
            f"--compare {command.measures[0]} compares two instructions, and {path} "
            "has completions of one"
        )
    partition = recorded_partition(
        path, command, measures=measures_of(command), bar=_bar
    )
    found = ReplicationAnalysis(partition=partition, seed=command.seed, watch=watch)
    return found, command.folder(COMMAND, f"recorded-{partition.name}")


def _folder(command: Replicate, plan: ReplicationPlan, model: str) -> Path:
    """Folder of the answers of a model, and of its reference."""
    return command.folder(COMMAND, model, plan.drawn.fingerprint)


def _opened(
    command: Replicate,
    plan: ReplicationPlan,
    model: PromptedModel | str | None,
    reference: PromptedModel | str | None,
    settings: ServerSettings,
) -> AbstractContextManager[list[PromptedModel]]:
    def journal(name: str) -> Journal:
        return Journal(_folder(command, plan, name) / JOURNAL_NAME)

    return opened(
        plan, model, reference, dtype=command.dtype, journal=journal, settings=settings
    )


def _planned(
    command: Replicate, plan: ReplicationPlan, settings: ServerSettings
) -> str:
    """Requests of a run, counted by a run whose answers are made up."""
    budget = settings.spending.budget
    served = {
        word: parse_api(word, flag=flag)
        for word, flag in ((command.model, "MODEL"), (command.reference, "--reference"))
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
        for word in (command.model, command.reference)
    )
    counters = [CountingCompleter(word=word) for word in _TOKENS]
    said = []
    with _opened(command, plan, own, other, settings) as models:
        asked = [
            dataclasses.replace(model, completer=one)
            for model, one in zip(models, counters, strict=False)
        ]
        found = ask(plan, *asked)
        journal = Journal(_folder(command, plan, models[0].name) / JOURNAL_NAME)
        guided = [prompt for prompts in plan.guided for prompt in prompts]
        for word, model, one, prompts, before in zip(
            (command.model, command.reference),
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
    if command.chat_judge is not None:
        judge = parse_api(command.chat_judge, flag="--judge")
        judges = CountingCompleter()
        judged_by(found, judges, prompt=_judge_prompt(command))
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
    if command.model in served:
        return " ".join([*said, "Nothing was sent."])
    return "\n".join(said)


def write_sheet(analysis: ReplicationAnalysis, out: Path) -> None:
    """Write the blind sheet; one that somebody may have filled in is never replaced."""
    arm = analysis.partition.arm
    sheet = kept_sheet(arm.instances, arm.guided, seed=analysis.seed, out=out)
    if sheet.name != SHEET_NAME:
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
