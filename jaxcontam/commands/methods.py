"""`jaxcontam methods`: what each method needs, gives and sees."""

import dataclasses

from rich.table import Table

from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.replication.catalogue import REPLICATION_METHODS
from jaxcontam.terminal import Terminal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Show the tables of methods: what each needs, gives, sees, and its source.

    Examples:
        jaxcontam methods  # every method: what it needs, gives and finds
    """

    def run(self) -> None:
        """Print the tests, then the membership scores, then what `replicate` does."""
        tests = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("method", "gives", "null", "cost", "finds", "source"):
            tests.add_column(column, overflow="fold", no_wrap=column == "method")
        # Many words a score: one under the other, not one beside the other.
        scores = Table(box=None, padding=(0, 2, 1, 0), header_style="bold")
        scores.add_column("score", no_wrap=True)
        scores.add_column("a ranking: higher is more likely a member")
        for method in METHODS.values():
            if isinstance(method, ScoreMethod):
                scores.add_row(method.name, _said_of(method))
            else:
                tests.add_row(
                    method.name,
                    f"p-value, {method.validity}",
                    method.null,
                    method.cost,
                    method.finds,
                    method.source,
                )
        console = Terminal()
        console.print(tests)
        console.print()
        console.print(scores)
        console.print()
        asked = Table(box=None, padding=(0, 2, 1, 0), header_style="bold")
        asked.add_column("replicate", no_wrap=True)
        asked.add_column("what a model writes when it is asked for instances")
        for row in REPLICATION_METHODS:
            lines = [
                f"{row.gives}; {row.cost}",
                f"needs: {row.needs}",
                f"finds: {row.finds}",
                f"source: {row.source}",
            ]
            if row.departure:
                lines.append(f"not as in the authors' code: {row.departure}")
            asked.add_row(row.name, "\n".join(lines))
        console.print(asked)


def _said_of(method: ScoreMethod) -> str:
    lines = [
        f"{method.setting}; {method.cost}" if method.setting else method.cost,
        f"needs: {method.needs}",
        f"finds: {method.finds}",
        f"source: {method.source}",
    ]
    if method.departure:
        lines.append(f"not as in the authors' code: {method.departure}")
    return "\n".join(lines)
