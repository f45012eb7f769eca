"""Every detector on the same planted models, with the same budget of tokens.

Question: given one model, one set and tokens for ten passes over it, which detector
tells sets that the model was trained on from sets that it was not, at how many copies,
and do the p-values among them keep to their level?
Command: `python -m eval.leaderboard`. Hardware: one CPU core, half an hour; a killed
run goes on where it stopped. Headline: docs/log has the table.
docs/how_to/own_method.md says how to add a detector by writing one file.

Fixed before any result of these seeds was looked at:

- 25 models of 0.16 M parameters, seeds 8000 to 8024, 126,464 training tokens in rows of
  128. Seven disjoint sets of 60 examples each in a random order of its own, at 0, 0, 1,
  2, 4, 8 and 16 copies, each copy a block in that order; examples are questions on
  Python's documentation of at most 40 tokens, drawn at random from one pool. About half
  of the training text is planted.
- A budget of 10 passes over the set, counted in tokens that the model reads, in windows
  and prefixes too, those of a reference model and of unseen texts among them. 120
  unseen texts of the same pool stand beside each set for entries that ask for them; no
  two sets share one.
- Order tests of `jaxcontam audit` with as many random orders as the budget buys: m + 1
  passes, and up to eight times as many where orders of short strata coincide and fit.
  Pairs in strata of 8, or of the most that fit. Two permutation tests that can say
  nothing before tens of passes are left out.
  Scores with their own settings, neighbours as many as the budget buys; `con_recall`,
  which needs known members, and `gradient_norm`, which costs a backward pass, are left
  out. One reference model, trained on background alone, seed 7999.
- Sorted by the AUC of all planted against all clean sets over all models.

A table of other models, seeds 7000 to 7039, was known. Settings were tried on seeds
90000 and above, which are not used.
"""

import dataclasses
import functools
import json
import math
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from eval.leaderboard.entries import FoundEntry, chosen_entries
from eval.leaderboard.population import (
    Field,
    corpus_counts,
    field_of,
    read_texts,
    train_arena,
    train_reference,
)
from eval.leaderboard.standings import auc_svg, entry_grid, grids, refusals, standings
from eval.leaderboard.trials import EntryError, Trial, trial_sources, try_entry
from eval.planted import in_rows
from eval.python_docs import read_python_docs
from eval.study import Clock, Records, StudyFlags, finish_study, run_study, say
from jaxcontam.errors import InputError
from jaxcontam.scoring.scorer import Scorer
from train.data import corpus_digest
from train.population_models import Design, Texts

MODELS_DIR = "models"


FIELD = field_of(
    Design(
        name="leaderboard",
        config=in_rows("0.16m", 128, batch_rows=1),
        n_examples=60,
        copies=(0, 0, 1, 2, 4, 8, 16),
        n_steps=988,
        max_example_tokens=40,
    )
)
PULSE = field_of(
    Design(
        name="pulse",
        config=in_rows("pulse", 128, batch_rows=2),
        n_examples=16,
        copies=(0, 8),
        n_steps=30,
        max_example_tokens=44,
    ),
    batch_tokens=32,
)
_TINY_MODELS = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard(StudyFlags):
    """Put every detector before the same planted models, with the same budget.

    Question: which one tells sets that a model was trained on from sets that it was
    not? Hardware: one CPU core, half an hour (--tiny: a minute, most of it compiling).
    """

    only: tuple[str, ...] = ()
    """Names of entries (default: all)."""
    entry: tuple[Path, ...] = ()
    """Python files with an entry of yours each, run as your own code; see
    docs/how_to/own_method.md."""
    budget: float = 10.0
    """Passes over the set that a detector may have read."""
    seed: int = 8000
    """Seed of the first model."""
    models: int = 25
    """Models, at least 2."""
    out: Path = Path("runs/leaderboard")
    """Folder of records and of the table; trials that stand there are kept."""

    positive = ("budget",)

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        if not math.isfinite(self.budget):
            raise InputError(f"--budget must be a finite number, got {self.budget}")
        if self.models < 2:
            raise InputError(
                f"--models must be at least 2, got {self.models}",
                hint="intervals are over models",
            )

    def run(self) -> dict[str, Any]:
        """Train and try what is missing, print the table; returns leaderboard.json."""
        clock, console = Clock.start(), Console()
        chosen = chosen_entries(self.entry, self.only)
        field = PULSE if self.tiny else FIELD
        console.print("Reading the documentation of this Python installation ...")
        docs = read_python_docs()
        questions = [question.text for question in docs.questions]
        corpus = corpus_digest([*docs.documents, *questions])
        bench = _Bench(field, read_texts(docs.documents, questions, field), self.seed)
        n_models = min(self.models, _TINY_MODELS) if self.tiny else self.models
        kept = Records(self.out / MODELS_DIR, code=trial_sources())
        facts, trials, earlier = [], [], 0.0
        failed: dict[str, str] = {}
        for seed in range(self.seed, self.seed + n_models):
            running = {name: chosen[name] for name in chosen if name not in failed}
            found = _all_trials(bench, kept, running, seed, self.budget, corpus)
            failed |= found.failed
            if len(failed) == len(chosen):
                words = "; ".join(f"{name}: {why}" for name, why in failed.items())
                raise InputError(
                    f"no entry is left: {' '.join(words.split())}",
                    hint="its traceback stands above",
                )
            if found.has_trained:
                say(
                    f"{len(facts) + 1} of {n_models}: seed {seed}, "
                    f"loss {found.facts['loss']:.2f}, "
                    f"{clock.cost()['cpu_seconds']:,.0f} CPU s so far"
                )
            else:
                earlier += found.facts["train_seconds"]
            facts.append(found.facts)
            trials += found.trials
        entries = {
            name: one.entry for name, one in chosen.items() if name not in failed
        }
        trials = [trial for trial in trials if trial.entry in entries]
        table = standings(list(entries.values()), trials)
        refused = refusals(trials)
        about = (
            f"{n_models} models of {facts[0]['n_parameters']:,} parameters, "
            f"{field.n_tokens:,} training tokens, sets of {field.n_examples}, "
            f"{self.budget:g} passes allowed"
        )
        document = finish_study(
            "leaderboard",
            self,
            clock=clock,
            numbers={
                "seeds": list(range(self.seed, self.seed + n_models)),
                "budget_passes": self.budget,
                "copies": list(field.copies[: field.n_tested]),
                "corpus_digest": corpus,
                "models": facts,
                # Through JSON, so that what is returned is what stands in the file.
                "standings": json.loads(json.dumps([*map(dataclasses.asdict, table)])),
                "over_budget": refused,
                "failed": failed,
            },
            grids=[
                *grids(table, entries, about=about),
                entry_grid([entries[one.entry] for one in table]),
            ],
            figures={"leaderboard": auc_svg(table, entries)} if table else None,
            console=console,
            earlier_seconds=earlier + kept.earlier_seconds,
        )
        for words, reasons in (("over budget", refused), ("failed", failed)):
            for name, reason in reasons.items():
                line = f"{name}: {words}, {reason}"
                console.print(line, highlight=False, markup=False)
        return document


class _Bench:
    """What all models share; the reference model is trained when an entry needs it."""

    def __init__(self, field: Field, texts: Texts, seed: int):
        self.field, self.texts, self.seed = field, texts, seed

    @functools.cached_property
    def reference(self) -> Scorer:
        """Train the reference, with a seed that is no model's; as `train_reference`."""
        # Seeds are at least 0, and that of the first model may be 0.
        seed = self.seed - 1 if self.seed else 2**31
        return train_reference(self.field, self.texts, seed=seed)

    @functools.cached_property
    def counts_V(self) -> np.ndarray:
        """Count the tokens of the corpus, as `corpus_counts` does."""
        return corpus_counts(self.field, self.texts)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tried:
    """Trials of all entries on one model.

    Attributes:
        trials: Trials of those that did not fail.
        failed: Name of an entry -> what it raised.
        has_trained: Whether the model had to be trained in this run.
        facts: What was trained.
    """

    trials: list[Trial]
    failed: dict[str, str]
    has_trained: bool
    facts: dict[str, Any]


def _all_trials(
    bench: _Bench,
    kept: Records,
    chosen: Mapping[str, FoundEntry],
    seed: int,
    passes: float,
    corpus: str,
) -> _Tried:
    """Keep the trials that stand there and make the others; a failure stops none."""
    trials: list[Trial] = []
    failed: dict[str, str] = {}
    facts: dict[str, Any] = {}
    arena, field = None, bench.field
    inputs = (dataclasses.asdict(field), seed, bench.seed, passes, corpus)
    for name, one in chosen.items():
        record = f"{field.name}-{seed}/{name}"
        fields = kept.read(record, *inputs, one.digest)
        if fields is None:
            if arena is None:
                arena = train_arena(field, bench.texts, seed=seed)
            needs = one.entry.needs
            try:
                found = try_entry(
                    one.entry,
                    arena,
                    passes=passes,
                    reference=bench.reference if "reference model" in needs else None,
                    counts_V=bench.counts_V if "corpus" in needs else None,
                )
            except EntryError as e:
                traceback.print_exception(e.__cause__)
                failed[name] = str(e)
                continue
            fields = {
                "facts": arena.facts(),
                "trials": [dataclasses.asdict(trial) for trial in found],
                "cpu_seconds": sum(trial.seconds for trial in found),
            }
            kept.write(record, fields, *inputs, one.digest)
        facts = fields["facts"] if arena is None else arena.facts()
        trials += [Trial(**row) for row in fields["trials"]]
    return _Tried(trials, failed, arena is not None, facts)


def main() -> int:
    """Command line of `python -m eval.leaderboard`."""
    return run_study("leaderboard", Leaderboard, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
