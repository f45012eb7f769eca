"""What do membership scores find, and when?

Question: how well does each score tell texts that a model was trained on from texts
that it was not, by number of copies, size of the corpus, likeness to it, learning rate,
size of the model and length of the text, and does a model answer examples better that
it saw? Shi et al., arXiv:2310.16789, sections 5.2 and 6, on models trained here, whose
members and non-members are drawn at random from one pool.
Command: `python -m eval.membership`. Hardware: one CPU core, half an hour for all
studies, at most eight minutes for one; nothing is downloaded. Headline: LOG.md.

Everything is scaled down: models of 0.16 to 1.3 M weights, corpora of at most 0.9 M
tokens. Trends can be compared with the paper's, numbers cannot.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval.membership.bench import FULL, TINY, Bench
from eval.membership.copies import copies_study, sizes_study
from eval.membership.downstream import (
    Found,
    accuracy_study,
    corpus_study,
    indistribution_study,
    occurrence_study,
    rate_study,
    tasks_study,
)
from eval.membership.table import grids, study_figure
from eval.membership.texts import Pool, read_pool, read_task
from eval.study import Clock, finish_study, run_study, say
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import unknown_name
from train.sources import read_documents

STUDIES: Mapping[str, Callable[[Bench], Found]] = {
    "copies": copies_study,
    "tasks": tasks_study,
    "indistribution": indistribution_study,
    "occurrence": occurrence_study,
    "rate": rate_study,
    "accuracy": accuracy_study,
    "corpus": corpus_study,
    "sizes": sizes_study,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Train models on known texts, then see what membership scores say of them."""

    studies: tuple[str, ...] = ()
    """Which (default: all): copies tasks indistribution occurrence rate accuracy
    corpus sizes."""
    corpus: tuple[Path, ...] = ()
    """Background: .jsonl files with a field `text`, .txt files or folders (default:
    documentation and code of this Python installation)."""
    tasks: tuple[Path, ...] = ()
    """Multiple-choice files to plant (default: made of this Python's docstrings)."""
    question_field: str = "question"
    """Field of the question in these files."""
    models: int = 2
    """Seeds of each setting."""
    seed: int = 0
    """The first of them."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    out: Path = Path("runs/membership-study")
    """Folder of models, scores, and of tables and a figure for each study."""
    tiny: bool = False
    """A pulse run of minutes, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models")
        for name in self.studies:
            if name not in STUDIES:
                raise unknown_name("study", name, STUDIES)

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found.

        Each study leaves its files when it is done.
        """
        bench, documents = self._bench(), {}
        for name in self.studies or tuple(STUDIES):
            say(f"eval.membership: {name}")
            clock = Clock.start()
            found = json.loads(json.dumps(dataclasses.asdict(STUDIES[name](bench))))
            svg = study_figure(name, found)
            documents[name] = finish_study(
                "membership",
                flags_of(self),
                part=name,
                clock=clock,
                out=self.out,
                numbers={
                    "seeds": list(bench.seeds),
                    "scale": dataclasses.asdict(bench.scale),
                    **found,
                },
                grids=grids(name, found),
                figures=None if svg is None else {name: svg},
            )
        return documents

    def _bench(self) -> Bench:
        pool = read_pool()
        if self.corpus:
            # Questions stay; those that the user's corpus holds too are few.
            pool = Pool(tuple(read_documents(self.corpus)), pool.questions)
        return Bench(
            scale=TINY if self.tiny else FULL,
            pool=pool,
            tasks=tuple(
                read_task(path, question_field=self.question_field)
                for path in self.tasks
            ),
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.out,
            any_code=self.any_code,
        )


def main() -> int:
    """Command line of `python -m eval.membership`."""
    return run_study("membership", Membership, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
