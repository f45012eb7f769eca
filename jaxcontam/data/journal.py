"""Finished pieces of a long run, one line of a file each: a rerun repeats none."""

import hashlib
import json
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError


class Journal:
    """JSON values by key, appended to a file as they come in.

    What a killed process left half written is a line that is not JSON; it is passed
    over, and so asked for again. One process writes at a time.
    """

    def __init__(self, path: Path):
        """Read what is there.

        Args:
            path: A .jsonl file; created with the first piece.

        Raises:
            InputError: If the file is not readable.
        """
        self.path = path
        self._values: dict[str, Any] = {}
        self._begins_line = True
        try:
            data = path.read_bytes() if path.exists() else b""
        except OSError as e:
            raise InputError(f"{path}: not readable ({e.strerror})") from e
        for line in data.split(b"\n"):
            try:
                row = json.loads(line)
                self._values[row["key"]] = row["value"]
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
        self._begins_line = not data or data.endswith(b"\n")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def add(self, key: str, value: Any) -> None:
        """Keep a piece, on disk before this returns.

        Raises:
            InputError: If the file cannot be written.
        """
        line = json.dumps({"key": key, "value": value}, allow_nan=False) + "\n"
        try:
            with self.path.open("ab") as file:
                file.write((b"" if self._begins_line else b"\n") + line.encode())
        except OSError as e:
            raise InputError(f"{self.path}: cannot be written ({e.strerror})") from e
        self._begins_line = True
        self._values[key] = value


def journal_key(*parts: object) -> str:
    """Digest of everything that a piece depends on.

    Args:
        *parts: JSON values.
    """
    words = json.dumps(parts, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(words.encode()).hexdigest()
