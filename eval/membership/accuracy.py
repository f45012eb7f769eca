"""Does a model answer the examples better that it was trained on?"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from eval.membership.tasks import Item
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.stats.shares import wilson_interval

Answered = Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]
"""Task -> for each seed, whether each seen and each unseen example was answered."""

_Z = 1.959964


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow:
    """Accuracy on seen and on unseen examples of one task in one setting.

    Attributes:
        setting: Such as a learning rate; `before` is the base model.
        task: Name, or `all`.
        n_seen: Examples, over all seeds.
        n_unseen: Likewise.
        seen: Share answered rightly.
        unseen: Likewise.
        difference: `seen` minus `unseen`.
        low: Lower end of its 95 % interval.
        high: Upper end.
        gain: `difference` minus that of the base model, which saw neither: how much
            more the seen examples gained.
        gain_low: Lower end of its 95 % interval, from the same examples before and
            after (normal).
        gain_high: Upper end.
    """

    setting: str
    task: str
    n_seen: int
    n_unseen: int
    seen: float
    unseen: float
    difference: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def right_answers(model: TextModel, items: Sequence[Item]) -> np.ndarray:
    """Whether the likeliest version of each item is the one with the right option.

    The versions of an item share its question, so the sum over the whole text ranks
    them as the sum over the option does, wherever tokens begin and end. Longer options
    are at a disadvantage, of seen and of unseen examples alike.

    Returns:
        (n_items,) bool.
    """
    texts = [version for item in items for version in item.versions]
    sums_N = model.plain.log_likelihoods(model.sequences(texts))
    ends = np.cumsum([len(item.versions) for item in items])[:-1]
    return np.array(
        [
            int(versions.argmax()) == item.answer
            for item, versions in zip(items, np.split(sums_N, ends), strict=True)
        ]
    )


def accuracy_rows(
    setting: str, answered: Answered, before: Answered
) -> list[AccuracyRow]:
    """One row a task, and one for all.

    Args:
        setting: See `AccuracyRow`.
        answered: See `Answered`.
        before: The same examples, answered by the base model.
    """
    rows = []
    every, every_before = (
        [both for of_seeds in found.values() for both in of_seeds]
        for found in (answered, before)
    )
    for task, now, then in [
        *((task, answered[task], before[task]) for task in answered),
        ("all", every, every_before),
    ]:
        seen, unseen = (np.concatenate(side) for side in zip(*now, strict=True))
        difference, low, high = share_difference(
            int(seen.sum()), len(seen), int(unseen.sum()), len(unseen)
        )
        changes = [
            after.astype(np.float64) - np.concatenate(side)
            for after, side in zip((seen, unseen), zip(*then, strict=True), strict=True)
        ]
        gain = float(changes[0].mean() - changes[1].mean())
        half = _Z * math.sqrt(sum(float(one.var()) / len(one) for one in changes))
        rows.append(
            AccuracyRow(
                setting=setting,
                task=task,
                n_seen=len(seen),
                n_unseen=len(unseen),
                seen=float(seen.mean()),
                unseen=float(unseen.mean()),
                difference=difference,
                low=low,
                high=high,
                gain=gain,
                gain_low=gain - half,
                gain_high=gain + half,
            )
        )
    return rows


def share_difference(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int
) -> tuple[float, float, float]:
    """Difference of two shares with its 95 % interval, by Wilson's limits of each.

    Source:
        Newcombe (1998), "Interval estimation for the difference between independent
        proportions", method 10.
    """
    a, b = successes_a / trials_a, successes_b / trials_b
    a_low, a_high = wilson_interval(successes_a, trials_a)
    b_low, b_high = wilson_interval(successes_b, trials_b)
    return (
        a - b,
        a - b - math.hypot(a - a_low, b_high - b),
        a - b + math.hypot(a_high - a, b - b_low),
    )
