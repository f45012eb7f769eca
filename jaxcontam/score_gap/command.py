"""`jaxcontam inflation`: how many points of a score come from having seen the items."""

import dataclasses
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from jaxcontam.amounts import counted, duration_words
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.journal import Journal
from jaxcontam.data.questions import QuestionFields
from jaxcontam.errors import InputError
from jaxcontam.progress import progress_bar, waiting_for
from jaxcontam.proof.outcome import print_table
from jaxcontam.proof.publish import shown
from jaxcontam.reports.flags import (
    DeviceFlags,
    Flags,
    ReportFlags,
    check_device_flags,
    check_references,
    flags_of,
    in_order,
    open_for,
    runs_here,
)
from jaxcontam.reports.report_files import make_folder
from jaxcontam.score_gap.items import Sides, read_sides
from jaxcontam.score_gap.judging import COMMAND, NAME_ONCE, InflationDesign
from jaxcontam.score_gap.page import inflation_sentences, inflation_tables
from jaxcontam.score_gap.result import InflationResult
from jaxcontam.score_gap.run import Answers, chosen_answers, compare, written_answers
from jaxcontam.terminal import Terminal


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Compared(Flags):
    """Models and files; a base, so that flags keep their order."""

    model: Positional[str]
    """Model directory, hub name, or api:URL#NAME; with --scored a column or a file."""
    benchmark: Positional[str | None] = None
    """Published items, or hf:ORG/NAME:SPLIT: multiple choice, or with an answer."""
    against: str | None = None
    """Items that cannot have been seen: rewrites, or another split."""
    references: tuple[str, ...] = ()
    """Models that saw neither, two or better five, slightly weaker and slightly
    stronger than MODEL, of different families: relatives differ too little."""


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inflation(InflationDesign, DeviceFlags, ReportFlags, QuestionFields, _Compared):
    """Estimate the points that a model's score gains by having seen the items.

    Examples:
        # rewrites, with the ids of their originals or in their order
        jaxcontam inflation MODEL test.jsonl --against new.jsonl --references A B
        # another split, drawn at random
        jaxcontam inflation DIR a.jsonl --against b.jsonl --unpaired --equally-hard
        # your own scores, one column per model
        jaxcontam inflation NAME test.csv --against new.csv --scored --references B
        # or one file per model, with columns item, published, other
        jaxcontam inflation model.csv --scored --references a.csv b.csv
    """

    dry_run: bool = False
    """Print what would be sent, and the time it takes; send nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.benchmark is None) != (self.against is None):
            raise InputError("BENCHMARK and --against go together")
        if self.against is not None and self.against == self.benchmark:
            raise InputError(f"--against {self.against}: the published items again")
        if len({self.model, *self.references}) <= len(self.references):
            raise InputError(
                "--references names a model twice, or MODEL itself", hint=NAME_ONCE
            )
        if self.scored:
            if self.dry_run:
                raise InputError("--scored uses no model: leave out --dry-run")
            return
        if self.benchmark is None:
            raise InputError(
                "no items to compare", hint="BENCHMARK --against OTHER, or --scored"
            )
        check_device_flags(self, self.model)

    def run(self) -> dict[str, Any] | None:
        """Ask, judge, write and print; the report, or None for a dry run."""
        if not self.scored:
            check_references(self)
        if self.dry_run:
            assert self.benchmark is not None and self.against is not None
            sides = read_sides(self.benchmark, self.against, self)
            Terminal().say(self._planned(sides))
            return None
        words = [self.model] if self.benchmark is None else [self.model, self.benchmark]
        found = compare(
            self,
            (self.model, *self.references),
            self.benchmark,
            self.against,
            self._ask,
            (COMMAND, *words, *flags_of(self)),
        )
        name, digest = Path(self.model).stem, found.result.fingerprint
        if not self.scored:
            # Answers serve every choice of flags, a report is of one.
            name, digest = self._name, fingerprint([row["text"] for row in found.rows])
        out = self.report_folder(COMMAND, name, digest)
        return shown(
            lambda: found.written(out),
            lambda console: _print(found.result, console),
            as_json=self.json,
        )

    @property
    def _name(self) -> str:
        return self.model.rstrip("/").rpartition("/")[2]

    def _folder_of(self, sides: Sides) -> Path:
        """Folder of answers and scores."""
        digest = fingerprint([one.prompt for one in sides.questions])
        return self.folder(COMMAND, self._name, digest)

    def _ask(self, word: str, sides: Sides) -> Answers:
        out = self._folder_of(sides)
        make_folder(out)
        if not sides.is_choice:
            from jaxcontam.scoring.api.budget import Spending
            from jaxcontam.scoring.prompted_model import ServerSettings, open_prompted

            spending = Spending(self.limits)
            settings = ServerSettings(spending=spending, concurrency=self.concurrency)
            # A journal is of one process, and a model has one of its own.
            prompted = open_prompted(
                word,
                dtype=self.dtype,
                is_plain=True,
                beside=None if word == self.model else self.model,
                journal=lambda name, _: Journal(out / f"{name}-answers.jsonl"),
                settings=settings,
            )
            return written_answers(
                prompted, sides.questions, progress_bar, new_tokens=self.new_tokens
            )
        opened = open_for(self, word)
        return chosen_answers(
            opened,
            sides.questions,
            progress_bar,
            store=self.store_in(out / opened.store_name),
            per_byte=self.per_byte,
        )

    def _planned(self, sides: Sides) -> str:
        n = len(sides.questions)
        words = f"{len(sides.published):,} published and {len(sides.other):,} others"
        # JAX and transformers are imported once the input is known to be good.
        if not sides.is_choice:
            from jaxcontam.models.hub import model_directory

            models = (self.model, *self.references)
            for word in filter(runs_here, models):
                model_directory(word)
            each = (
                f", and of {counted(len(self.references), 'reference')}"
                if self.references
                else ""
            )
            return (
                f"{words}: {counted(n, 'answer')} of at most {self.new_tokens} tokens "
                f"each of {self.model}{each}. Nothing was sent."
            )
        lines = [f"{words}, in choices."]
        for word in (self.model, *self.references):
            name = "" if word == self.model else f"The reference, {word}: "
            lines.append(name + self._cost_words(word, sides))
        return "\n".join([*lines, "Nothing was scored."])

    def _cost_words(self, word: str, sides: Sides) -> str:
        """Requests, or tokens and time, that a model takes."""
        from jaxcontam.score_gap.items import choice_groups
        from jaxcontam.scoring.api.budget import sending_words
        from jaxcontam.scoring.cost import groups_cost, scoring_seconds
        from jaxcontam.scoring.remote import CountedPrompts, RemoteScorer
        from jaxcontam.scoring.scorer import Scorer

        opened = open_for(self, word, plan_only=True)
        scorer = self.scorer(opened, self._folder_of(sides))
        if not isinstance(scorer, Scorer | RemoteScorer):
            raise InputError(f"--dry-run: the cost of {word} is not known")
        cost = groups_cost(scorer, choice_groups(sides.questions, opened), set())
        if isinstance(scorer, RemoteScorer):
            assert isinstance(scorer.prompts, CountedPrompts)
            found = scorer.prompts.estimate(self.limits)
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
