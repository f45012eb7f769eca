"""The threshold of a score that tells members from non-members most often.

Dimension key
    P  members
    Q  non-members
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class Threshold:
    """A cut: texts that score at or above it count as members.

    Attributes:
        value: The cut.
        accuracy: Mean of the two shares that it gets right, of the members and of the
            non-members, on the texts that it was chosen on; at least 0.5 and, since it
            was chosen there, too high for others.
    """

    value: float
    accuracy: float


def best_threshold(members_P: np.ndarray, nonmembers_Q: np.ndarray) -> Threshold:
    """The cut with the highest accuracy, both groups weighing the same.

    Candidates lie half way between neighbouring scores, and above the highest. Among
    equally accurate ones the highest is taken: it calls fewest texts members. Where
    no cut is better than chance, none is a member.

    Args:
        members_P: (P,) finite scores, higher = more likely a member, P >= 1.
        nonmembers_Q: (Q,) likewise.

    Raises:
        ValueError: If a group is empty or a score is not finite.
    """
    P, Q = len(members_P), len(nonmembers_Q)
    if min(P, Q) < 1:
        raise ValueError(f"each group must have at least 1 score, got {P} and {Q}")
    pooled = np.concatenate([members_P, nonmembers_Q]).astype(np.float64)
    if not np.isfinite(pooled).all():
        raise ValueError("scores must be finite")
    values = np.unique(pooled)
    # Numbers at or above each value, and none above all of them.
    n_found = P - np.searchsorted(np.sort(members_P), values, side="left")
    n_false = Q - np.searchsorted(np.sort(nonmembers_Q), values, side="left")
    # tpr - fpr times P * Q: whole numbers, so that ties are ties.
    gain = np.append(n_found * Q - n_false * P, 0).astype(np.int64)
    best = len(gain) - 1 - int(np.argmax(gain[::-1]))
    accuracy = 0.5 + float(gain[best]) / (2 * P * Q)
    if best == len(values):
        return Threshold(math.nextafter(float(values[-1]), math.inf), accuracy)
    assert best > 0, "all being members is no better than none, which comes first"
    below, above = float(values[best - 1]), float(values[best])
    middle = below + (above - below) / 2
    # Between neighbouring floats there is no other.
    return Threshold(middle if middle > below else above, accuracy)
