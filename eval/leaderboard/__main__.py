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
import json
import math
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.leaderboard.entries import FoundEntry, chosen_entries
from eval.leaderboard.standings import entry_grid, grids, refusals, standings
from eval.leaderboard.trials import (
    Arena,
    Bench,
    EntryError,
    Trial,
    shown_copies,
    trial_sources,
    try_entry,
)
from eval.study import Clock, Records, StudyFlags, finish_study, run_study, say
from jaxcontam.errors import InputError

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
        console.print("Reading the documentation of this Python installation ...")
        bench = Bench(seed=self.seed, tiny=self.tiny)
        design = bench.design
        n_models = min(self.models, _TINY_MODELS) if self.tiny else self.models
        kept = Records(self.out / "models", code=trial_sources())
        facts, trials, earlier = [], [], 0.0
        failed: dict[str, str] = {}
        for seed in range(self.seed, self.seed + n_models):
            running = {name: chosen[name] for name in chosen if name not in failed}
            arena, facts_of, found = self._tried(bench, kept, running, seed, failed)
            if len(failed) == len(chosen):
                words = "; ".join(f"{name}: {why}" for name, why in failed.items())
                raise InputError(
                    f"no entry is left: {' '.join(words.split())}",
                    hint="its traceback stands above",
                )
            if arena is None:
                earlier += facts_of["train_seconds"]
            else:
                say(
                    f"{len(facts) + 1} of {n_models}: seed {seed}, "
                    f"loss {facts_of['loss']:.2f}, "
                    f"{clock.cost()['cpu_seconds']:,.0f} CPU s so far"
                )
            facts.append(facts_of)
            trials += found
        entries = {
            name: one.entry for name, one in chosen.items() if name not in failed
        }
        trials = [trial for trial in trials if trial.entry in entries]
        table = standings(list(entries.values()), trials)
        refused = refusals(trials)
        about = (
            f"{n_models} models of {facts[0]['n_parameters']:,} parameters, "
            f"{design.n_tokens:,} training tokens, sets of {design.n_examples}, "
            f"{self.budget:g} passes allowed"
        )
        document = finish_study(
            "leaderboard",
            self,
            clock=clock,
            numbers={
                "seeds": list(range(self.seed, self.seed + n_models)),
                "budget_passes": self.budget,
                "copies": list(shown_copies(design)),
                "corpus_digest": bench.corpus,
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
            console=console,
            earlier_seconds=earlier + kept.earlier_seconds,
        )
        for words, reasons in (("over budget", refused), ("failed", failed)):
            for name, reason in reasons.items():
                line = f"{name}: {words}, {reason}"
                console.print(line, highlight=False, markup=False)
        return document

    def _tried(
        self,
        bench: Bench,
        kept: Records,
        running: Mapping[str, FoundEntry],
        seed: int,
        failed: dict[str, str],
    ) -> tuple[Arena | None, dict[str, Any], list[Trial]]:
        """Keep the trials that stand there and make the others.

        An entry's failure goes into `failed` and stops no other.

        Returns:
            The model if it had to be trained, its facts, and the trials.
        """
        trials: list[Trial] = []
        facts: dict[str, Any] = {}
        arena, design = None, bench.design
        inputs = (dataclasses.asdict(design), seed, self.seed, self.budget)
        for name, one in running.items():
            record = f"{design.name}-{seed}/{name}"
            key = (*inputs, bench.corpus, one.digest)
            fields = kept.read(record, *key)
            if fields is None:
                arena = arena or bench.arena(seed)
                try:
                    found = try_entry(one.entry, arena, passes=self.budget)
                except EntryError as e:
                    traceback.print_exception(e.__cause__)
                    failed[name] = str(e)
                    continue
                fields = {
                    "facts": arena.model.facts,
                    "trials": [dataclasses.asdict(trial) for trial in found],
                    "cpu_seconds": sum(trial.seconds for trial in found),
                }
                kept.write(record, fields, *key)
            facts = fields["facts"]
            trials += [Trial(**row) for row in fields["trials"]]
        return arena, arena.model.facts if arena else facts, trials


if __name__ == "__main__":
    sys.exit(run_study("leaderboard", Leaderboard, trains=True, compiles=True))
