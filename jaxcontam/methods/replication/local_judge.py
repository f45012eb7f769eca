"""A judge of copies that needs no model: equality of words, and two shares of them.

Words are runs of letters and digits of any alphabet, and each sign of the scripts that
write no spaces between words. The constants are fixed. They were chosen on the 280
completions that came with the paper, of which people call 20 copies; so how well the
rule agrees with those people is no forecast of how well it does elsewhere.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.rouge import common_words
from jaxcontam.methods.replication.instance import (
    Completion,
    Instance,
    possible_pieces,
    words_of,
)
from jaxcontam.methods.replication.judges import Judged, Judgement

JUDGE_VERSION = "local-2"
"""Name of the judge, which changes with any constant or rule of this module."""

NEAR = 0.70
"""`near_score` from which a completion is called near-exact."""

NEAR_BLEURT = 0.755
"""Score of BLEURT-20 from which it is, where such scores are at hand."""

# A reference of fewer words is met by chance.
_FEWEST_NEAR = 3
# A copy of this many words counts anywhere in a completion.
_FEWEST_WITHIN = 8
# Three words of a long reference are no copy of it, though all of them are right.
_LEAST_RECALL = 0.25
# Nor are words such as "the" and "over", in whatever order they come.
_FEWEST_CONTENT = 2
_STRONGEST: tuple[Judgement, ...] = ("exact", "near", "no")
# A model that does not stop is judged on as many words as the reference has.
_RUNS_ON = 2
_FUNCTION_WORDS = frozenset(
    words_of(
        "a about after again all also am an and any are as at be because been before "
        "being but by can could did do does for from had has have he her here him his "
        "how i if in into is it its just me more most my no nor not now of off on once "
        "one only or other our out over own s same she should so some such t than that "
        "the their them then there these they this those through to too under until up "
        "very was we were what when where which while who whom why will with would you "
        "your"
    )
)


def judge_version(*, with_bleurt: bool = False) -> str:
    """`JUDGE_VERSION`, and whether the judge has scores of BLEURT-20 to read."""
    return JUDGE_VERSION + "+bleurt-20" * with_bleurt


def judge_local(
    instances: Sequence[Instance],
    completions: Sequence[Completion],
    *,
    bleurt: np.ndarray | None = None,
) -> Judged:
    """Say of each completion whether it is an exact or a near-exact copy.

    Args:
        instances: What was asked for.
        completions: One each, in their order; refused ones are counted, not judged.
        bleurt: (N,) scores of BLEURT-20, nan where there is none. They find copies in
            other words, which shares of words cannot; no other model's scores will do.
    """
    labels: list[Judgement | None] = []
    for i, (instance, completion) in enumerate(
        zip(instances, completions, strict=True)
    ):
        if completion.refused:
            labels.append(None)
            continue
        meaning = None if bleurt is None else float(bleurt[i])
        found: set[Judgement] = {
            judge_pair(instance.second_piece, candidate, bleurt=meaning)
            for candidate in possible_pieces(instance, completion.text)
        }
        labels.append(min(found, key=_STRONGEST.index))
    return Judged(labels=tuple(labels), n_refused=labels.count(None))


def judge_pair(
    reference: str, candidate: str, *, bleurt: float | None = None
) -> Judgement:
    """Whether a candidate is an exact copy of the reference, a near-exact one, or none.

    Exact: the same words, whatever their case and the marks between them; or, of a
    reference of 8 words or more, the same words one after the other anywhere in the
    candidate. Near-exact: at least 3 words each, a quarter of the reference's words in
    order, two of its content words and a quarter of them, and a `near_score` of 0.70
    or more or a BLEURT-20 score of 0.755 or more. A candidate of more than twice the
    reference's words is cut to as many before that.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, section 3.1, ask a model or a human.
    """
    wanted, found = words_of(reference), words_of(candidate)
    if not wanted or not found:
        return "no"
    if found == wanted:
        return "exact"
    if len(wanted) >= _FEWEST_WITHIN and _stands_within(wanted, found):
        return "exact"
    if min(len(wanted), len(found)) < _FEWEST_NEAR:
        return "no"
    if len(found) > _RUNS_ON * len(wanted):
        found = found[: len(wanted)]
    if common_words(wanted, found) / len(wanted) < _LEAST_RECALL:
        return "no"
    content = _content(wanted)
    n_shared = (Counter(content) & Counter(found)).total()
    if n_shared < max(min(_FEWEST_CONTENT, len(content)), _LEAST_RECALL * len(content)):
        return "no"
    # A nan is at least nothing.
    has_meaning = bleurt is not None and bleurt >= NEAR_BLEURT
    return "near" if has_meaning or near_score(wanted, found) >= NEAR else "no"


def is_short(instance: Instance) -> bool:
    """Whether a reference has so few words, one or two, that chance meets it."""
    return len(words_of(instance.second_piece)) < _FEWEST_NEAR


def instance_warnings(instances: Sequence[Instance]) -> tuple[str, ...]:
    """What makes these instances easy to "copy" without having seen them."""
    warnings = []
    n_alike = sum(
        instance.cut == "pair"
        and judge_pair(instance.second_piece, instance.first_piece) != "no"
        for instance in instances
    )
    if n_alike:
        warnings.append(
            f"in {n_alike} of {len(instances)} pairs a model that only repeats the "
            "first text would be judged to copy the second"
        )
    if n_short := sum(map(is_short, instances)):
        warnings.append(
            f"{n_short} of {len(instances)} references have fewer than {_FEWEST_NEAR} "
            "words, so a model that knows the answer meets them without a copy"
        )
    return tuple(warnings)


def _stands_within(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether the words stand in others one after the other."""
    # No word has a space in it.
    return f" {' '.join(wanted)} " in f" {' '.join(found)} "


def near_score(wanted: Sequence[str], found: Sequence[str]) -> float:
    """How little of a candidate's words the reference does not have, from 0 to 1.

    The mean of two shares: of the candidate's words, those in the longest common
    subsequence (the precision of ROUGE-L); of its content words, those that the
    reference has. Extra text lowers it; what is left out of the reference does not.
    """
    if not wanted or not found:
        return 0.0
    in_order = common_words(wanted, found) / len(found)
    content = _content(found)
    if not content:
        return in_order
    shared = (Counter(content) & Counter(wanted)).total()
    return (in_order + shared / len(content)) / 2


def _content(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _FUNCTION_WORDS]
