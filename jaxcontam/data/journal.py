"""Append-only journal of finished requests, so that a rerun repeats none."""

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError


class Journal:
    """JSON values by key, appended to a file as they come in.

    What a killed process left half written is a line that is not JSON; it is passed
    over, and so asked for again. One process writes at a time, from any thread. Values
    stay in the file, because answers with log-probabilities may not fit into memory.
    """

    def __init__(self, path: Path):
        """Read what is there.

        Args:
            path: A .jsonl file; created with the first piece.

        Raises:
            InputError: If the file is not readable.
        """
        self.path = path
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, int]] = {}
        self._begins_line = True
        try:
            if not path.exists():
                return
            with path.open("rb") as file:
                start = 0
                for line in file:
                    self._begins_line = line.endswith(b"\n")
                    try:
                        row = json.loads(line)
                        key, _ = row["key"], row["value"]
                        self._places[key] = (start, len(line))
                    except (ValueError, LookupError, TypeError, RecursionError):
                        pass
                    start += len(line)
        except OSError as e:
            raise InputError(f"{path}: not readable ({e.strerror})") from e

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        start, length = self._places[key]
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return json.loads(file.read(length))["value"]
        except (OSError, ValueError, LookupError, TypeError) as e:
            raise InputError(f"{self.path}: changed while it was in use ({e})") from e

    def add(self, key: str, value: Any) -> None:
        """Keep a piece, on disk before this returns.

        Raises:
            InputError: If the file cannot be written.
        """
        line = json.dumps({"key": key, "value": value}, allow_nan=False).encode()
        with self._lock:
            try:
                with self.path.open("ab") as file:
                    file.write(b"" if self._begins_line else b"\n")
                    start = file.tell()
                    # Until the whole line is there, what is written may be half one.
                    self._begins_line = False
                    file.write(line + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as e:
                words = f"{self.path}: cannot be written ({e.strerror})"
                raise InputError(words) from e
            self._begins_line = True
            self._places[key] = (start, len(line))


def journal_key(*parts: object) -> str:
    """Digest of everything that a piece depends on.

    Args:
        *parts: JSON values.
    """
    words = json.dumps(parts, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(words.encode()).hexdigest()
