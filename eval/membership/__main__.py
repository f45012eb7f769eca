"""What do membership scores find, and at how many copies?

Question: how well does each score tell texts that a model was trained on from texts
that it was not, by number of copies? Members and non-members are drawn at random from
one pool, so that whoever reads the texts alone is at chance.
Command: `python -m eval.membership`. Hardware: one CPU core, eight minutes; nothing is
downloaded. Headline: docs/log, which also has the trends of Shi et al.
(arXiv:2310.16789, sections 5.2 and 6) and the commit whose code found them.

Everything is scaled down: models of .73 M weights. Order of scores can be compared with
the paper's, numbers cannot.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from eval.membership.copies import FULL, TINY, Bench, copies_study
from eval.membership.tables import grids
from eval.membership.texts import read_pool
from eval.python_docs import PythonDocs
from eval.study import Clock, StudyFlags, finish_study, run_study
from train.data import read_documents


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership(StudyFlags):
    """Train models on known texts, then see what membership scores say of them."""

    corpus: tuple[Path, ...] = ()
    """Background: .jsonl files with a field `text`, .txt files or folders (default:
    documentation and code of this Python installation)."""
    models: int = 2
    """Seeds of each setting."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    out: Path = Path("runs/membership-study")
    """Folder of models, scores and tables."""

    positive = ("models",)

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found."""
        clock = Clock.start()
        pool = read_pool()
        if self.corpus:
            # Questions stay; those that the user's corpus holds too are few.
            pool = PythonDocs(tuple(read_documents(self.corpus)), pool.questions)
        bench = Bench(
            scale=TINY if self.tiny else FULL,
            pool=pool,
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.out,
            any_code=self.any_code,
        )
        found = copies_study(bench)
        return finish_study(
            "membership",
            self,
            file="copies",
            clock=clock,
            numbers={
                "seeds": list(bench.seeds),
                "scale": dataclasses.asdict(bench.scale),
                **dataclasses.asdict(found),
            },
            grids=grids(found),
        )


if __name__ == "__main__":
    sys.exit(run_study("membership", Membership, trains=True, compiles=True))
