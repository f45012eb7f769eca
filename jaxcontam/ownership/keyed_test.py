"""Keyed canary: a model is asked for values by their keys, and writes answers.

Dimension key
    G  groups
    V  values that each group's was drawn from
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from jaxcontam.ownership.keyed_rows import VALUES, KeyedGroup
from jaxcontam.ownership.secret_test import METHOD as CANARY
from jaxcontam.proof.result import DESIGNED
from jaxcontam.proof.versions import version_numbers
from jaxcontam.reports.terms import ProofWords
from jaxcontam.scoring.completer import Completion, without_thoughts
from jaxcontam.stats.result import LEVEL, OrderNumbers

EFFECT_UNIT = "share of groups"
MIN_EFFECT = 0.25
"""Share of the groups, known for certain, that `no evidence` must be able to find."""
PROMPTS = (
    "{question}",
    "Question: {question}\nAnswer:",
    "{question}\nAnswer with one word. If you do not know, guess.",
)
"""How each question is asked: as published, as many corpora hold questions, and so that
a model dares to answer."""

_POWER = 0.8
_VALUE = re.compile(rf"\b({'|'.join(VALUES)})s?\b", re.I)


def value_of(answer: Completion) -> str | None:
    """The first value that an answer names, thoughts left out; None if it names none.

    A refusal names none. The rule treats all values alike, which keeps the test exact.
    """
    found = _VALUE.search(without_thoughts(answer.text))
    return None if found is None else found[1].lower()


def chat_rows(
    groups: Sequence[KeyedGroup], answers: Sequence[Sequence[str | None]]
) -> np.ndarray:
    """How often each value is named for a group, its own first, as (G, V) shares.

    None among the answers is no value, and has no part; a row without any value is 0.
    """
    rows = []
    for group, named in zip(groups, answers, strict=True):
        values = (group.value, *(value for value in VALUES if value != group.value))
        n_named = max(1, len(named) - named.count(None))
        rows.append([named.count(value) / n_named for value in values])
    return np.array(rows)


def _numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """`version_numbers`, with a detectable effect that holds for few answers.

    It is a share of all groups, as the effect is: those without an answer may be the
    very ones that the model knows.
    """
    numbers = version_numbers(rows, seed)
    n_answered = sum(bool(row.any()) for row in rows)
    mde = detectable_share(n_answered, n_values=len(rows[0]))
    if mde is not None:
        mde = 1 - (1 - mde) * n_answered / len(rows)
    return dataclasses.replace(numbers, mde=mde)


def detectable_share(n_groups: int, *, n_values: int) -> float | None:
    """Smallest share of groups, each known or not, found with power 0.8 at 0.001.

    So many of the groups that were answered have to be right that chance reaches it
    once in a thousand; None where all of them are too few.
    """
    from scipy.special import betainc, betaincinv

    for right in range(1, n_groups + 1):
        # P(Binomial(n, q) >= k) is the incomplete beta function at q.
        if betainc(right, n_groups - right + 1, 1 / n_values) <= LEVEL:
            return float(betaincinv(right, n_groups - right + 1, _POWER))
    return None


METHOD = dataclasses.replace(
    CANARY,
    name="canary_chat",
    needs="answers alone, no log-probabilities",
    analyse=_numbers,
    least_effects={EFFECT_UNIT: MIN_EFFECT},
    cost="12 answers a group",
    finds="keyed rows that were learned, in any order, in a form like the one asked",
    source="ours; random targets as DyePack, Cheng et al. 2025, arXiv:2505.23001",
    words=ProofWords(
        row="group",
        version="value",
        versions="values",
        seen="keyed rows seen; nothing else was tested",
        unseen="that the keyed rows were learned",
        more="more groups are needed, or a model that answers",
        meaning="A small p-value says that the model answers questions about made-up "
        "names with values that a secret seed drew. Nothing but the published rows "
        "connects the two. It says nothing of other text. ",
        silence="Silence does not say that the rows were never read: few copies leave "
        "nothing, and a model may decline to answer, or know them in another form of "
        "question alone.",
        assumed={
            DESIGNED: "nothing of the model or of any text: each value was drawn at "
            "random from a recorded seed",
        },
        unchecked="since the seed drew keys and values",
        chance="each of {n_strata} groups would have its own value and {n_orders} "
        "others named alike often; the summed share of right answers would reach the "
        "observed one with probability {p}",
        unit="groups answered right, above chance",
        null_caption="Right answers, in groups, and what the same sum is when a random "
        "value stands in for each group's own.",
        evidence_caption="Where the evidence lies: the share of right answers of each "
        "group.",
        limits="versions",
    ),
)
