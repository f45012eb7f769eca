"""`jaxcontam methods`: what each method needs, gives and sees."""

import dataclasses

from rich.console import Console
from rich.table import Table

from jaxcontam.methods import METHODS
from jaxcontam.methods.method import ScoreMethod


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Show the table of methods: what each needs, gives, sees, and its source."""

    def run(self) -> None:
        """Print the table."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("method", "gives", "null", "cost", "finds", "source"):
            table.add_column(column, overflow="fold", no_wrap=column == "method")
        for method in METHODS.values():
            is_score = isinstance(method, ScoreMethod)
            table.add_row(
                method.name,
                "score, a ranking" if is_score else f"p-value, {method.validity}",
                "none" if is_score else method.null,
                method.cost,
                method.finds,
                method.source,
            )
        Console().print(table)
