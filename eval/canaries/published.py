"""What is known of the paper's ten canary sets: copies and figures, each sourced."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

Plan = Literal["published", "lower"]
"""Copies of the paper's first model, or of its second one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Canary:
    """One of the ten sets.

    Attributes:
        published: Copies in the paper's first model.
        lower: Copies in the authors' second model.
        sharded_p: p-value of the sharded test on the first model, as it was printed.
        min_k: Share of spans that Min-K% Prob called contaminated on the first model:
            100 spans of 512 tokens, at a threshold that was tuned to 5 % false alarms
            on five planted and five other sets.
    """

    published: int
    lower: int
    sharded_p: str | None = None
    min_k: str | None = None


# Copies: the README of the authors' code (tatsu-lab/test_set_contamination) has both
# columns. Figures: the table in the authors' public answer to the reviewers of
# arXiv:2310.17623, which has these five sets and no figure of the second model.
CANARIES: Mapping[str, Canary] = {
    "boolq": Canary(1, 1, "0.156", "3 %"),
    "hellaswag": Canary(1, 1, "0.478", "2 %"),
    "openbookqa": Canary(1, 2),
    "naturalquestions": Canary(10, 2),
    "mnli": Canary(10, 4, "1.96e-11", "100 %"),
    "truthfulqa": Canary(10, 4),
    "piqa": Canary(50, 7),
    "mmlu_professional_law": Canary(50, 7, "1e-38", "90 %"),
    "mmlu_professional_psychology": Canary(50, 10),
    "mmlu_high_school_psychology": Canary(100, 10, "1e-38", "74 %"),
}


def copies_of(plan: Plan) -> dict[str, int]:
    """Copies of each set in a plan."""
    return {name: getattr(canary, plan) for name, canary in CANARIES.items()}


def plan_of(copies: Mapping[str, int]) -> Plan | None:
    """The plan whose sets were planted with these copies; None if it is neither.

    Args:
        copies: Of the planted sets, by name.
    """
    plans: tuple[Plan, ...] = ("published", "lower")
    return next((plan for plan in plans if copies_of(plan) == copies), None)
