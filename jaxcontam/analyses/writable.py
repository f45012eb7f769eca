"""What every analysis that can be written as a report shares."""

from pathlib import Path
from typing import Any


class Writable:
    """Gives `save` to an analysis that says how it is `written`."""

    __slots__ = ()

    def save(self, out: str | Path) -> Path:
        """Write report.json, what it follows from, its table and report.html.

        Args:
            out: Folder; made if it is missing.

        Returns:
            The path of report.html.

        Raises:
            InputError: If the folder cannot be written.
        """
        return self.written(Path(out))[1]

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        raise NotImplementedError
