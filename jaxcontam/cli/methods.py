"""`jaxcontam methods`: what each method needs, gives and sees."""

import dataclasses

from rich.padding import Padding
from rich.table import Table
from tyro.conf import Positional

from jaxcontam.cli.formulas import FORMULAS
from jaxcontam.errors import unknown_name
from jaxcontam.members.scores import SCORES
from jaxcontam.methods import METHODS
from jaxcontam.orders.methods import TESTS
from jaxcontam.replication.page import REPLICATION_METHODS
from jaxcontam.terminal import Terminal

_REPLICATION = {row.name: row for row in REPLICATION_METHODS}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Show what each method gives and costs, or all about some of them.

    Examples:
        jaxcontam methods  # every method, in a line or two
        jaxcontam methods adjacency min_k  # formula, null, source, example
    """

    name: Positional[tuple[str, ...]] = ()
    """Methods to describe in full (default: all in short)."""

    def run(self) -> None:
        """Print the tests, then the membership scores, then what `replicate` does."""
        console = Terminal()
        known = [*METHODS, *_REPLICATION]
        for name in self.name:
            if name not in known:
                raise unknown_name("method", name, known)
            console.print(name, style="bold")
            for line in [*_lines(name), *_example(name)]:
                console.print(Padding(line, (0, 0, 0, 2)))
        if self.name:
            return
        for title, names in {
            "proofs": [name for name in METHODS if name not in SCORES],
            "rankings (membership)": list(SCORES),
            "completions (replicate)": list(_REPLICATION),
        }.items():
            table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
            table.add_column(title, no_wrap=True)
            table.add_column("gives; costs")
            table.add_column("finds")
            for name in names:
                given, finds = _lines(name)[:2]
                table.add_row(name, given, finds.removeprefix("finds: "))
            console.print(table, "")
        console.print("jaxcontam methods NAME has the rest: formula, null, source.")


def _lines(name: str) -> list[str]:
    row = METHODS.get(name) or _REPLICATION[name]
    lines = [f"{row.gives}; {row.cost}", f"finds: {row.finds}", f"needs: {row.needs}"]
    # A method of another package has none.
    if formula := FORMULAS.get(name):
        lines.insert(2, f"formula: {formula}")
    if null := getattr(row, "null", ""):
        lines.append(f"null hypothesis: {null}")
    lines.append(f"source: {row.source}")
    if departure := getattr(row, "departure", ""):
        lines.append(f"not as in the authors' code: {departure}")
    return lines


def _example(name: str) -> list[str]:
    if name in TESTS:
        return [f"example: jaxcontam audit MODEL benchmark.jsonl --tests {name}"]
    if name in SCORES:
        return [f"example: jaxcontam membership MODEL labelled.jsonl --scores {name}"]
    return []
