"""What was measured of one model, kept in a file, so that it is not measured again."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.open_questions.rows import Question, Row
from eval.study import inputs_digest
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name
from train.earlier import code_version

Found = dict[str, list[Row]]
"""Rows by question."""


class Records:
    """A folder of measurements.

    Attributes:
        earlier_seconds: CPU seconds of those that were read and not made.
    """

    def __init__(
        self, folder: Path, questions: Mapping[str, Question], *, any_code: bool
    ):
        """Keep rows of these questions in a folder, which is made.

        Args:
            folder: Where files stand.
            questions: By name.
            any_code: Take what other code measured, too.
        """
        make_folder(folder)
        self.any_code = any_code
        self.code = code_version()
        self.folder = folder
        self.questions = questions
        self.earlier_seconds = 0.0

    def of(
        self, name: str, inputs: Sequence[Any], measure: Callable[[], Found]
    ) -> Found:
        """Rows under a name: those that stand there, or measured now.

        Args:
            name: Of the file.
            inputs: All that the rows follow from but the code, as JSON takes it.
            measure: Makes them.
        """
        path = self.folder / f"{name}.json"
        key = inputs_digest(cpu_name(), *inputs)
        kept = self._read(path, key)
        if kept is not None:
            found, seconds = kept
            self.earlier_seconds += seconds
            return found
        wall, start = time.monotonic(), time.process_time()
        found = measure()
        seconds = time.process_time() - start
        fields = {
            "key": key,
            "code": self.code,
            "cpu_seconds": round(seconds, 2),
            "rows": {
                question: [dataclasses.asdict(row) for row in rows]
                for question, rows in found.items()
            },
        }
        replace_bytes(path, f"{json.dumps(fields, allow_nan=False)}\n".encode())
        print(
            f"{name}: {time.monotonic() - wall:.0f} s, {seconds:.0f} CPU s",
            file=sys.stderr,
            flush=True,
        )
        return found

    def _read(self, path: Path, key: str) -> tuple[Found, float] | None:
        """Rows of a file and what they took; None if it is not there, or another's."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            # Where git cannot tell the code, an old record may be another code's.
            is_same = self.code is not None and fields["code"] == self.code
            if fields["key"] != key or not (is_same or self.any_code):
                return None
            found = {
                name: [self.questions[name].row(**row) for row in rows]
                for name, rows in fields["rows"].items()
            }
            return found, float(fields["cpu_seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
