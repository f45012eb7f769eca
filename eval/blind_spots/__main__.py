"""What can order tests not see, and who sees it?

Question: of a set that a model read 10 times, shuffled, one example a document,
reworded, in another template or file format, or once after deduplication: which tests
of order find it, which tests of versions and options, which membership scores rank its
texts, and does the model write them out?
Command: `python -m eval.blind_spots`. Hardware: one CPU core, twenty minutes;
nothing is downloaded; a killed run goes on where it stopped. Headline: LOG.md.

Fixed before any result of these seeds was looked at:

- `ten`: 6 models of the quickstart's 0.73 M parameters, seeds 4000 to 4005, each with
  twelve disjoint sets of 100 examples (`forms.FORMS`): eight planted 10 times, one
  once, three never. 100,000 tokens of background, some 0.43 M in all, three
  quarters of them planted: an easy setting.
- `fifty`: 2 such models, seeds 5000 and 5001, sets of 60, 50 times: replication finds
  nothing at 10 copies (LOG.md, eval.replication).
- Rewordings: `wordings.py`, four wordings of each question, of which a random one is
  published and a random other one is what reworded copies say; names of functions stay.
  So `variants` is exact here on every set, by design. Planted again and again is one
  and the same rewording.
- On a reworded set neither test of versions can beat chance. `variants`
  compares the planted wording with the published one, so its p is near 1: the model
  prefers what it read. `variants_3` leaves the planted wording out, as an auditor
  who does not know it would; which other wording is published is drawn without regard
  to what is planted, so its p is uniform. It was added after models 4000 to 4002 had
  been looked at; all else stayed.
- Deduplicated: one copy in published order, which is what the removal of equal
  documents, or of equal lines, leaves of `as published`.
- Order tests with the settings that `audit` gives them, on the file as published: a
  set planted in another form is audited in the form that its owner published.
  `sharded_t` reads the scores of `stratified`. `permutation` is left out: it sees what
  `stratified` sees at a hundred times its cost for p <= 0.001.
- Scores of texts as published against those of both sets that were never planted;
  `set_level` tests all four scores together with 1,999 permutations.
- Replication as `jaxcontam replicate --task plain`: 50 instances (40 of `fifty`) are
  shown by their first piece; Fisher's p against sets that were never planted.
- A set is found at p <= 0.001.

One model (seed 90000, 10 copies, 150,000 tokens of background) was looked at before,
for its cost, and is not used.
"""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.blind_spots.forms import FORMS, Scale, eligible
from eval.blind_spots.model import ModelRecord, model_record
from eval.blind_spots.seen import Seen
from eval.blind_spots.table import cells, grids
from eval.python_docs import read_python_docs
from eval.study import Clock, Records, finish_study, run_study, say
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from train.sources import corpus_digest

TEN = Scale(
    name="ten",
    preset="tiny",
    n_examples=100,
    copies=10,
    background_tokens=100_000,
    n_asked=50,
    new_tokens=40,
    n_permutations=1_999,
)
FIFTY = dataclasses.replace(TEN, name="fifty", n_examples=60, copies=50, n_asked=40)
PULSE = Scale(
    name="pulse",
    preset="pulse",
    n_examples=16,
    copies=2,
    background_tokens=5_000,
    n_asked=3,
    new_tokens=8,
    n_permutations=19,
    batch_tokens=256,
)
RECORD_NAME = "seen"
# Added to the seed of the first model of 10 copies.
_FIFTY_LATER = 1_000
# So many models of 10 copies to one of 50, which takes as long as two.
_TENS_A_FIFTY = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpots:
    """Plant sets in forms that order tests may miss, and let every method look.

    Question: which methods see a set that was planted shuffled, one example a
    document, reworded, in another template, or once? Hardware: one CPU core, twenty
    minutes.
    """

    seed: int = 4000
    """Seed of the first model; those of 50 copies begin 1000 later."""
    models: int = 6
    """Models with 10 copies; a third as many with 50."""
    any_code: bool = False
    """Take finished models that other code trained and looked at."""
    out: Path = Path("runs/blind_spots")
    """Folder of models and tables; finished models are not made again."""
    tiny: bool = False
    """A pulse run of seconds, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models")

    def run(self) -> dict:
        """Make what is missing, print the tables; returns what blind_spots.json has."""
        clock = Clock.start()
        docs = read_python_docs()
        questions = eligible(docs.questions)
        corpus = corpus_digest([*docs.documents, *(q.text for q in docs.questions)])
        kept = Records(self.out, any_code=self.any_code)
        records, planned = [], self._planned()
        for scale, seed in planned:
            name = f"{scale.name}-{seed}"
            fields = dataclasses.asdict(scale)
            # How it is computed, not what.
            del fields["batch_tokens"]
            found = kept.read(f"{name}/{RECORD_NAME}", fields, seed, corpus)
            if found is None:
                record = model_record(
                    scale, docs.documents, questions, seed=seed, out=self.out / name
                )
                found = dataclasses.asdict(record)
                kept.write(f"{name}/{RECORD_NAME}", found, fields, seed, corpus)
            records.append(record_of(found))
            say(
                f"eval.blind_spots: {len(records)} of {len(planned)}: {scale.name} "
                f"{seed}, {records[-1].cpu_seconds:.0f} CPU s"
            )
        table = cells(records)
        return finish_study(
            "blind_spots",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={
                "corpus_digest": corpus,
                "n_questions": len(questions),
                "scales": [
                    dataclasses.asdict(one)
                    for one in dict.fromkeys(scale for scale, _ in planned)
                ],
                "forms": [dataclasses.asdict(form) for form in FORMS],
                "cells": [dataclasses.asdict(cell) for cell in table],
                "models": [dataclasses.asdict(record) for record in records],
            },
            grids=grids(table),
            earlier_seconds=kept.earlier_seconds,
        )

    def _planned(self) -> list[tuple[Scale, int]]:
        """Every model, those of 50 copies between the others."""
        if self.tiny:
            return [(PULSE, self.seed)]
        planned = []
        for i in range(self.models):
            planned.append((TEN, self.seed + i))
            number, place = divmod(i + 1, _TENS_A_FIFTY)
            if place == 0:
                planned.append((FIFTY, self.seed + _FIFTY_LATER + number - 1))
        return planned


def record_of(fields: Mapping[str, Any]) -> ModelRecord:
    """A record from the fields of its file."""
    rows = tuple(Seen(**row) for row in fields["rows"])
    return ModelRecord(**{**fields, "rows": rows})


def main() -> int:
    """Command line of `python -m eval.blind_spots`."""
    return run_study("blind_spots", BlindSpots, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
