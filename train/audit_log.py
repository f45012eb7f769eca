"""When a run is audited, and the log of what was found: audits.jsonl."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.report.report_files import replace_bytes
from jaxcontam.stats.effect import LEVEL
from train.step_log import read_rows, row_bytes

AUDITS_NAME = "audits.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One test of one set at one step: a line of audits.jsonl.

    Attributes:
        step: Training steps done.
        tokens: Targets trained on so far.
        set: Name of the planted set or control.
        copies: Copies of it in all training data; 0 for a control.
        copies_seen: Copies of which some part was trained on by this step.
        method: A row of METHODS: an order test, or `min_k`.
        validity: For an order test `exact`, `asymptotic` or `heuristic`; None for
            `min_k`, like the next five.
        p_value: Uncorrected.
        log10_p: log10 of it, without its limit at 1e-300.
        effect: Nats per example boundary.
        effect_se: Its standard error.
        mde: Smallest effect found with power 0.8 at level 0.001.
        auc: For `min_k`, the probability that a text of the set outscores one of the
            reference; None for order tests, like its standard error. A ranking, which
            proves nothing.
        auc_se: DeLong standard error.
        reference: Sets that it is compared with; empty for order tests.
    """

    step: int
    tokens: int
    set: str
    copies: int
    copies_seen: int
    method: str
    validity: str | None = None
    p_value: float | None = None
    log10_p: float | None = None
    effect: float | None = None
    effect_se: float | None = None
    mde: float | None = None
    auc: float | None = None
    auc_se: float | None = None
    reference: tuple[str, ...] = ()


class AuditLog:
    """Writes audits.jsonl; each audit is written whole or not at all."""

    def __init__(self, path: Path, *, last_step: int = 0):
        """Open the log, without rows after the step that the run resumes from.

        Raises:
            InputError: If the file holds something else.
        """
        self._path = path
        # Before the first step there is nothing to resume: the file is another run's.
        self.rows: list[dict[str, Any]] = (
            read_rows(path, last_step=last_step) if last_step else []
        )
        self._write()

    def append(self, rows: Sequence[AuditRow]) -> None:
        """Write the rows of one audit."""
        self.rows += [dataclasses.asdict(row) for row in rows]
        self._write()

    def _write(self) -> None:
        replace_bytes(self._path, row_bytes(self.rows))


def audit_words(rows: Sequence[AuditRow]) -> str:
    """One audit in a line: sets that each order test finds at 0.001, uncorrected."""
    words = []
    for method in dict.fromkeys(row.method for row in rows if row.log10_p is not None):
        planted, controls = (
            [
                row.log10_p <= math.log10(LEVEL)
                for row in rows
                if row.method == method
                and row.log10_p is not None
                and (row.copies == 0) == is_control
            ]
            for is_control in (False, True)
        )
        words.append(
            f"{method} p <= {LEVEL:g} in {sum(planted)} of {len(planted)} planted sets "
            f"and {sum(controls)} of {len(controls)} controls"
        )
    return f"audit at step {rows[0].step}: {'; '.join(words) or 'membership alone'}"


def check_audit_flags(at: Sequence[float], every: int | None) -> None:
    """Refuse times of audits that cannot be, before anything slow.

    Raises:
        InputError: Names the flag.
    """
    for share in at:
        if not 0 <= share <= 1:
            raise InputError(
                f"--audit-at must be from 0 to 1, got {share:g}",
                hint="shares of training, such as --audit-at 0.25 0.5 1.0",
            )
    if every is not None and every < 1:
        raise InputError(f"--audit-every must be at least 1, got {every}")


def audit_steps(
    at: Sequence[float], every: int | None, n_steps: int
) -> tuple[int, ...]:
    """Steps after which to audit, ascending.

    Args:
        at: Shares of training: 0 is before the first step, 1 after the last one.
        every: Also after every N steps and after the last one; None for none.
        n_steps: Steps in all.

    Raises:
        InputError: As `check_audit_flags`.
    """
    check_audit_flags(at, every)
    # A share above 0 asks for a model that was trained, however little.
    steps = {max(1, round(share * n_steps)) if share else 0 for share in at}
    if every is not None:
        steps |= {*range(every, n_steps, every), n_steps}
    return tuple(sorted(steps))
