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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.evidence.sources import LIRA_STUDY, Measured, Source, read_source
from eval.study import Clock, Grid, finish_study, run_study
from jaxcontam.commands.flags import flags_of
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.replication.catalogue import REPLICATION_METHODS

COMMANDS = {
    "eval.power": "python -m eval.power",
    "eval.membership": "python -m eval.membership",
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
    """Left by `python -m eval.membership`."""
    lira: Path = Path("runs/lira/lira.json")
    """Left by `python -m eval.lira`."""
    replication: Path = Path("runs/replication-study/report.json")
    """Left by `python -m eval.replication`."""
    out: Path = Path("runs/evidence")
    """Folder for evidence.md and evidence.json."""

    def run(self) -> dict[str, Any]:
        """Read what is there, print the table in Markdown; returns evidence.json."""
        clock = Clock.start()
        sources = [
            read_source(study, getattr(self, study.removeprefix("eval.")), command)
            for study, command in COMMANDS.items()
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


RANKING = "nothing alone: a ranking beside texts of known kind"
NOT_MEASURED = "not measured"
CAVEAT = (
    "Numbers of different studies are of different models and sets: they compare "
    "within a study only, and intervals only where they are over the same things."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a method says of itself.

    Attributes:
        method: Its name.
        proves: What it gives, and under which assumption.
        needs: What the model must expose.
        cost: Passes over the data, or answers.
        sees: What it can and cannot find.
        source: Paper.
    """

    method: str
    proves: str
    needs: str
    cost: str
    sees: str
    source: str


LIRA = Claim(
    method="lira",
    proves=f"{RANKING}; a bound for scores where one's own training can be repeated",
    needs="log-probabilities; models trained like the target, with and without each "
    "text",
    cost="1 pass, and of each shadow model its training and 1 pass",
    sees="presence in any order, beside how much of it training makes",
    source="Carlini et al. 2022, arXiv:2112.03570",
)
BLIND = Claim(
    method="blind",
    proves="nothing of the model: how far labels follow from the texts",
    needs="labelled texts, no model",
    cost="none",
    sees="members and non-members that differ by themselves",
    source="Das et al. 2024, arXiv:2406.16201",
)


def claims() -> list[Claim]:
    """Claims of tests, scores, LiRA, what is written from memory, and no model."""
    tests, scores = [], []
    for row in METHODS.values():
        if isinstance(row, ScoreMethod):
            scores.append(_claim(row, RANKING))
        else:
            proves = f"p-value, {row.validity}; null: {row.null}"
            tests.append(_claim(row, proves))
    written = [_claim(row, row.gives) for row in REPLICATION_METHODS]
    return [*tests, *scores, LIRA, *written, BLIND]


def _claim(row: Any, proves: str) -> Claim:
    return Claim(
        method=row.name,
        proves=proves,
        needs=row.needs,
        cost=row.cost,
        sees=row.finds,
        source=row.source,
    )


def evidence_grids(sources: Sequence[Source]) -> list[Grid]:
    """The table, and where its numbers come from."""
    measured: dict[str, list[Measured]] = {}
    beside_lira: dict[str, list[Measured]] = {}
    for source in sources:
        for row in source.rows:
            name = BLIND.method if row.method.startswith(BLIND.method) else row.method
            is_beside = row.study == LIRA_STUDY and name != LIRA.method
            (beside_lira if is_beside else measured).setdefault(name, []).append(row)
    copies = sorted(
        {count for one in sources for row in one.rows for count in row.found}
    )
    known = claims()
    strangers = [name for name in measured if name not in {c.method for c in known}]
    table: list[tuple[str, ...]] = []
    for claim in known:
        table += _rows(claim, measured.get(claim.method, []), copies)
        if claim is LIRA:
            # A score of the same models and texts says what shadow models add.
            for other in known:
                if other.method in beside_lira:
                    table += _rows(other, beside_lira[other.method], copies)
    for name in strangers:
        empty = Claim(method=name, proves="", needs="", cost="", sees="", source="")
        table += _rows(empty, measured[name], copies)
    return [
        Grid(
            "Each method: what it can prove, what it costs, and what it found here, by "
            f"how often sets were read. {CAVEAT}",
            (
                *("method", "can prove", "needs", "cost", "sees", "found here"),
                *map(_copies_words, copies),
                *("95 % interval over", "study"),
            ),
            tuple(table),
        ),
        Grid.of(
            "Where the numbers come from",
            sources,
            {
                "study": "{r.study}",
                "file": "{r.file}",
                "measured on": lambda one: one.about or "missing: run the command",
                "date": "{r.date}",
                "code": "{r.code}",
                "command": "`{r.command}`",
            },
        ),
    ]


def _rows(
    claim: Claim, measured: Sequence[Measured], copies: Sequence[int]
) -> list[tuple[str, ...]]:
    """A line a variant; one without numbers where no study measured the method."""
    said = (claim.proves, claim.needs)
    if not measured:
        blanks = ("" for _ in copies)
        return [
            (claim.method, *said, claim.cost, claim.sees, NOT_MEASURED, *blanks, "", "")
        ]
    return [
        (
            _name(claim.method, row),
            *said,
            "; ".join(filter(None, (claim.cost, row.cost and f"here {row.cost}"))),
            claim.sees,
            row.what,
            *(row.found.get(count, "") for count in copies),
            row.over,
            row.study,
        )
        for row in measured
    ]


def _name(method: str, row: Measured) -> str:
    if row.method != method:
        return row.method
    if not row.variant:
        return method
    return row.variant if row.variant.startswith(method) else f"{method}: {row.variant}"


def _copies_words(count: int) -> str:
    if count == 0:
        return "never read"
    return "1 copy" if count == 1 else f"{count} copies"


def main() -> int:
    """Command line of `python -m eval.evidence`."""
    return run_study("evidence", Evidence)


if __name__ == "__main__":
    sys.exit(main())
