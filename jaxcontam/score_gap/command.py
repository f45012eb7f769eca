"""`jaxcontam inflation`: how many points of a score come from having seen the items."""

import functools
from pathlib import Path
from typing import Any

from jaxcontam.amounts import counted, duration_words
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import progress_bar, waiting_for
from jaxcontam.proof.outcome import print_table
from jaxcontam.proof.publish import shown
from jaxcontam.reports.flags import (
    check_references,
    flags_of,
    open_for,
    runs_here,
)
from jaxcontam.reports.report_files import make_folder
from jaxcontam.score_gap.flags import Inflation
from jaxcontam.score_gap.items import Sides, read_sides
from jaxcontam.score_gap.judging import COMMAND
from jaxcontam.score_gap.page import inflation_sentences, inflation_tables
from jaxcontam.score_gap.result import InflationResult
from jaxcontam.score_gap.run import Answers, chosen_answers, compare, written_answers
from jaxcontam.terminal import Terminal


def estimate(command: Inflation) -> dict[str, Any] | None:
    """Ask, judge, write and print; the report, or None for a dry run."""
    if not command.scored:
        check_references(command)
    if command.dry_run:
        assert command.benchmark is not None and command.against is not None
        sides = read_sides(command.benchmark, command.against, command)
        Terminal().say(_planned(command, sides))
        return None
    words = (
        [command.model]
        if command.benchmark is None
        else [command.model, command.benchmark]
    )
    found = compare(
        command,
        (command.model, *command.references),
        command.benchmark,
        command.against,
        functools.partial(_ask, command),
        (COMMAND, *words, *flags_of(command)),
    )
    name, digest = Path(command.model).stem, found.result.fingerprint
    if not command.scored:
        # Answers serve every choice of flags, a report is of one.
        name, digest = _name(command), fingerprint([row["text"] for row in found.rows])
    out = command.report_folder(COMMAND, name, digest)
    return shown(
        lambda: found.written(out),
        lambda console: _print(found.result, console),
        as_json=command.json,
    )


def _name(command: Inflation) -> str:
    return command.model.rstrip("/").rpartition("/")[2]


def _folder_of(command: Inflation, sides: Sides) -> Path:
    """Folder of answers and scores."""
    digest = fingerprint([one.prompt for one in sides.questions])
    return command.folder(COMMAND, _name(command), digest)


def _ask(command: Inflation, word: str, sides: Sides) -> Answers:
    out = _folder_of(command, sides)
    make_folder(out)
    if not sides.is_choice:
        from jaxcontam.scoring.api.budget import Spending
        from jaxcontam.scoring.prompted_model import ServerSettings, open_prompted

        spending = Spending(command.limits)
        settings = ServerSettings(spending=spending, concurrency=command.concurrency)
        # A journal is of one process, and a model has one of its own.
        prompted = open_prompted(
            word,
            dtype=command.dtype,
            is_plain=True,
            beside=None if word == command.model else command.model,
            journal=lambda name, _: Journal(out / f"{name}-answers.jsonl"),
            settings=settings,
        )
        return written_answers(
            prompted, sides.questions, progress_bar, new_tokens=command.new_tokens
        )
    opened = open_for(command, word)
    return chosen_answers(
        opened,
        sides.questions,
        progress_bar,
        store=command.store_in(out / opened.store_name),
        per_byte=command.per_byte,
    )


def _planned(command: Inflation, sides: Sides) -> str:
    n = len(sides.questions)
    words = f"{len(sides.published):,} published and {len(sides.other):,} others"
    # JAX and transformers are imported once the input is known to be good.
    if not sides.is_choice:
        from jaxcontam.models.hub import model_directory

        models = (command.model, *command.references)
        for word in filter(runs_here, models):
            model_directory(word)
        each = (
            f", and of {counted(len(command.references), 'reference')}"
            if command.references
            else ""
        )
        return (
            f"{words}: {counted(n, 'answer')} of at most {command.new_tokens} tokens "
            f"each of {command.model}{each}. Nothing was sent."
        )
    lines = [f"{words}, in choices."]
    for word in (command.model, *command.references):
        name = "" if word == command.model else f"The reference, {word}: "
        lines.append(name + _cost_words(command, word, sides))
    return "\n".join([*lines, "Nothing was scored."])


def _cost_words(command: Inflation, word: str, sides: Sides) -> str:
    """Requests, or tokens and time, that a model takes."""
    from jaxcontam.score_gap.items import choice_groups
    from jaxcontam.scoring.api.budget import sending_words
    from jaxcontam.scoring.cost import groups_cost, scoring_seconds
    from jaxcontam.scoring.remote import CountedPrompts, RemoteScorer
    from jaxcontam.scoring.scorer import Scorer

    opened = open_for(command, word, plan_only=True)
    scorer = command.scorer(opened, _folder_of(command, sides))
    if not isinstance(scorer, Scorer | RemoteScorer):
        raise InputError(f"--dry-run: the cost of {word} is not known")
    cost = groups_cost(scorer, choice_groups(sides.questions, opened), set())
    if isinstance(scorer, RemoteScorer):
        assert isinstance(scorer.prompts, CountedPrompts)
        found = scorer.prompts.estimate(command.limits)
        return f"{counted(cost.n_targets, 'token')}; {sending_words(found)}"
    with waiting_for("compiling and timing a batch"):
        time = duration_words(scoring_seconds(scorer, cost.positions))
    return (
        f"{counted(cost.n_targets, 'token')}, {cost.n_cached:,} of them in the "
        f"store; the others take {time} at the speed of one batch now."
    )


def _print(result: InflationResult, console: Terminal) -> None:
    for table in inflation_tables(result):
        print_table(table, console)
        console.print()
    console.say(*inflation_sentences(result))
