"""Open questions of the tests' design, asked of models trained here.

Questions: is a pair matrix symmetric (then two passes would do)? Are shard differences
skewed (then the t-test of Oren et al. is wrong)? How far do lag profiles reach? Long
context or long examples? Which tokens of an example carry the order memory? Which
tests should `audit --effort` run?
Command: `python -m eval.open_questions`. Hardware: one CPU core, half an hour; nothing
is downloaded; a killed run goes on where it stopped. Headline: LOG.md.

Fixed before any result of these seeds was looked at (settings were tried on seeds 90000
and above):

- `0.16m`: 16 models of 0.16 M parameters, seeds 60000 to 60015, 126,464 tokens in rows
  of 128; five disjoint sets of 120 examples at 0, 1, 2, 4 and 10 copies, examples cut
  to 31 tokens. Asked of symmetry, skew, lags, places, and, up to 4 copies, efforts.
- `tiny`: 4 models of 0.73 M, seeds 61000 to 61003, 339,968 tokens; sets of 125 at 0, 1,
  2, 4, 10 and 50 copies. Asked the same.
- `CxL`: 3 models of 0.16 M for each context C of 64, 128, 256 and each cut L of 10, 20,
  40 tokens, seeds 62000 to 70002, 126,464 tokens in steps of 256; sets of 2,400 / L
  examples at 0, 4, 10 and 20 copies. Asked of context and symmetry, where L is 10 of
  efforts, too.
- Hypotheses: rho near 0 (a first study found .02); no left skew; a spike at lag +1
  alone; the first 8 to 16 tokens hold the memory; defaults (`reversal` over 6,
  `adjacency` over 8 on all tokens, `two_min` over 12 with m = 9) are not beaten at
  equal passes. A default should be changed where another test of no more passes gains
  at least 0.3 decades, with an interval above 0, in the populations of both sizes.

`--trained RUN` asks symmetry, skew, lags and places of a finished training run, too;
with `--models 0`, of it alone.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.open_questions import efforts, matrices, orders
from eval.open_questions.models import (
    BY_CONTEXT,
    GIVEN_QUESTIONS,
    LADDER,
    PULSE,
    TINY,
    GivenRun,
    Population,
    given_subjects,
    read_runs,
    trained_subjects,
)
from eval.open_questions.scores import Question, Row, SetScores, Subject
from eval.python_docs import read_python_docs
from eval.study import Clock, Records, finish_study, run_study
from jaxcontam.commands.flags import STORE_DIR, check_positive, check_seed, flags_of
from jaxcontam.data.manifest import manifest_json
from jaxcontam.errors import InputError, unknown_name
from train.population_plan import Texts, texts_in_memory
from train.sources import corpus_digest

_ORDER = ("symmetry", "skew", "lags", "places", "context", "efforts")
QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in sorted(
        (*matrices.QUESTIONS, *orders.QUESTIONS, *efforts.QUESTIONS),
        key=lambda question: _ORDER.index(question.name),
    )
}
Found = dict[str, list[Row]]
"""Rows by question."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestions:
    """Train small models with planted sets and measure what the design leaves open.

    Questions: symmetry, skew, lags, places, context, efforts. Hardware: one CPU core,
    half an hour (--tiny: 20 seconds).
    """

    questions: tuple[str, ...] = ()
    """Which (default: all): symmetry skew lags places context efforts."""
    trained: tuple[Path, ...] = ()
    """Finished training runs, too: folders with manifest.json, model/ and sets/."""
    models: int = 16
    """Models of 0.16 M parameters; fewer of each other population. 0 trains none:
    only the runs of --trained are asked."""
    seed: int = 60000
    """Seed of the first model; other populations begin 1000, 2000, ... later."""
    any_code: bool = False
    """Take finished measurements that other code made."""
    out: Path = Path("runs/open_questions")
    """Folder for tables, figures and a record of each model; finished ones are kept."""
    tiny: bool = False
    """A pulse run of seconds, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.models or not self.trained:
            check_positive(self, "models")
        for name in self.questions:
            if name not in QUESTIONS:
                raise unknown_name("question", name, QUESTIONS)
        if not (self.models or self._asked(GIVEN_QUESTIONS)):
            raise InputError(
                f"--models 0: none of {', '.join(self.questions)} can be asked of a "
                "given run",
                hint=f"--trained can be asked: {', '.join(GIVEN_QUESTIONS)}",
            )

    def run(self) -> dict[str, Any]:
        """Train and measure what is missing, print tables; returns the numbers."""
        clock = Clock.start()
        # What is wrong with them is said before anything is trained.
        runs = read_runs(self.trained)
        records = Records(self.out / "models", any_code=self.any_code)
        asked = self.questions or tuple(QUESTIONS)
        found = [*self._of_populations(records), *self._of_given(runs, records)]
        rows = {name: [row for one in found for row in one[name]] for name in asked}
        answers = [QUESTIONS[name].answer(rows[name]) for name in asked if rows[name]]
        return finish_study(
            "open_questions",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={
                "seed": self.seed,
                "rows": {
                    name: [dataclasses.asdict(row) for row in rows[name]]
                    for name in asked
                },
            },
            grids=[grid for one in answers for grid in one.grids],
            figures={k: svg for one in answers for k, svg in one.figures.items()},
            earlier_seconds=records.earlier_seconds,
        )

    def _asked(self, questions: tuple[str, ...]) -> list[str]:
        """Those of some questions that the user wants answered."""
        return [name for name in questions if name in (self.questions or QUESTIONS)]

    def _of_populations(self, records: Records) -> Iterator[Found]:
        """Measurements of every model that is trained here."""
        planned = self._planned()
        if not planned:
            return
        docs = read_python_docs()
        questions = [question.text for question in docs.questions]
        corpus = corpus_digest([*docs.documents, *questions])
        texts: dict[tuple[int, int], Texts] = {}
        for design, seed in planned:
            names = self._asked(design.questions)
            if not names:
                continue

            def subjects(design=design, seed=seed) -> list[Subject]:
                kind = (design.preset.decoder.vocab_size, design.max_example_tokens)
                if kind not in texts:
                    texts[kind] = texts_in_memory(docs.documents, questions, design)
                return trained_subjects(design, texts[kind], seed=seed)

            inputs = (dataclasses.asdict(design), seed, corpus, names)
            yield kept(records, f"{design.name}-{seed}", inputs, subjects, names)

    def _of_given(self, runs: Sequence[GivenRun], records: Records) -> Iterator[Found]:
        """Measurements of the runs that the user names, set by set."""
        names = self._asked(GIVEN_QUESTIONS)
        for run in runs if names else ():
            about = manifest_json(run.manifest)
            store = self.out / STORE_DIR
            for subject in given_subjects(run, seed=self.seed, store=store):
                name = subject.benchmark.name
                inputs = (str(run.folder), about, name, self.seed, names)
                yield kept(
                    records,
                    f"{run.name}-{name}",
                    inputs,
                    lambda subject=subject: [subject],
                    names,
                )

    def _planned(self) -> list[tuple[Population, int]]:
        """Models to train, populations in turn, so that an unfinished run has some."""
        if self.tiny:
            return [(PULSE, self.seed + i) for i in range(min(self.models, 2))]
        planned = []
        for design in (LADDER, TINY, *BY_CONTEXT):
            # Each population has a model if any has.
            n = max(min(1, self.models), round(self.models * design.share))
            planned += [
                ((i + 0.5) / n, design, self.seed + design.first_seed + i)
                for i in range(n)
            ]
        planned.sort(key=lambda one: one[0])
        return [(design, seed) for _, design, seed in planned]


def kept(
    records: Records,
    name: str,
    inputs: Sequence[Any],
    subjects: Callable[[], list[Subject]],
    questions: Sequence[str],
) -> Found:
    """Rows of a record, by question, or measured now.

    Args:
        records: Records of the study.
        name: Name of the record.
        inputs: All that the rows follow from but the code, as JSON takes it.
        subjects: Makes the sets to measure.
        questions: What they are asked.
    """
    fields = records.read(name, *inputs)
    if fields is not None:
        return {
            question: [QUESTIONS[question].row(**row) for row in rows]
            for question, rows in fields["rows"].items()
        }
    clock = Clock.start()
    found: Found = {question: [] for question in QUESTIONS}
    for subject in subjects():
        scores = SetScores(subject)
        for question in questions:
            found[question] += QUESTIONS[question].measure(scores)
    cost = clock.cost()
    rows = {
        question: [dataclasses.asdict(row) for row in own]
        for question, own in found.items()
    }
    records.write(name, {"cpu_seconds": cost["cpu_seconds"], "rows": rows}, *inputs)
    print(
        f"{name}: {cost['wall_seconds']:.0f} s, {cost['cpu_seconds']:.0f} CPU s",
        file=sys.stderr,
        flush=True,
    )
    return found


def main() -> int:
    """Command line of `python -m eval.open_questions`."""
    return run_study("open_questions", OpenQuestions, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
