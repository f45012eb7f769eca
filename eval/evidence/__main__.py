"""Which method proves what, at what cost, and what did it find here?

Question: all methods in one table: what each can prove and under which assumption, what
it needs and costs, and what it found on models whose training is known.
Command: `python -m eval.evidence`. Hardware: none, seconds: it reads what other
studies left, and names those that are missing with their commands. Headline: LOG.md.

What a method claims comes from its row in METHODS; nothing is typed twice. Numbers of
different studies are of different models and sets, and compare within a study only; the
table says so, and what each interval is over.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.evidence.sources import read_source
from eval.evidence.table import evidence_grids
from eval.study import Clock, finish_study, run_study
from jaxcontam.commands.flags import flags_of

COMMANDS = {
    "eval.power": "python -m eval.power",
    "eval.membership": "python -m eval.membership --studies copies",
    "eval.lira": "python -m eval.lira",
    "eval.replication": "python -m eval.replication",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Gather what studies found into one table: method, what it can prove, cost.

    Nothing is trained or scored here.
    """

    power: Path = Path("runs/power/power.json")
    """Left by `python -m eval.power`."""
    membership: Path = Path("runs/membership-study/copies.json")
    """Left by `python -m eval.membership --studies copies`."""
    lira: Path = Path("runs/lira/lira.json")
    """Left by `python -m eval.lira`."""
    replication: Path = Path("runs/replication-study/report.json")
    """Left by `python -m eval.replication`."""
    out: Path = Path("runs/evidence")
    """Folder for evidence.md and evidence.json."""

    def run(self) -> dict[str, Any]:
        """Read what is there, print the table in Markdown; returns evidence.json."""
        clock = Clock.start()
        files = {
            "eval.power": self.power,
            "eval.membership": self.membership,
            "eval.lira": self.lira,
            "eval.replication": self.replication,
        }
        sources = [
            read_source(study, file, COMMANDS[study]) for study, file in files.items()
        ]
        grids = evidence_grids(sources)
        document = finish_study(
            "evidence",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={
                "sources": [dataclasses.asdict(source) for source in sources],
                "header": grids[0].header,
                "rows": grids[0].rows,
            },
            grids=grids,
            figures={},
            # Lines are too long for columns; Markdown is printed in their place.
            console=Console(quiet=True),
        )
        print((self.out / "evidence.md").read_text(encoding="utf-8"), end="")
        for source in sources:
            if not source.rows:
                print(
                    f"eval.evidence: no {source.file}: run `{source.command}`",
                    file=sys.stderr,
                )
        return document


def main() -> int:
    """Command line of `python -m eval.evidence`."""
    return run_study("evidence", Evidence)


if __name__ == "__main__":
    sys.exit(main())
