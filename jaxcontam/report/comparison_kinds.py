"""Kinds of reports that can be compared: what must be alike, how an effect is told."""

import dataclasses
from collections.abc import Mapping

from jaxcontam.report.page_words import ORDER_COMPARISON, RANKING_COMPARISON, PageWords


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKind:
    """What the tests of one comparison share.

    Attributes:
        name: Of the tests, in a sentence.
        design: Field of a result -> words for it. Where two results of one benchmark
            differ in one of them, their numbers mean other things.
        flags: Flag of the command -> words for it, likewise.
        effect: What its effect is called.
        nothing: Value of the effect where there is none.
        unit: Sentence about the numbers of a table; `{}` stands for their unit.
        caption: Sentence about the figure.
        words: Of the page.
    """

    name: str
    design: Mapping[str, str]
    flags: Mapping[str, str]
    effect: str
    nothing: float
    unit: str
    caption: str
    words: PageWords


_FLAGS = {"--template": "template", "--text-field": "text field"}

ORDER = ComparedKind(
    name="order tests",
    design={
        "fingerprint": "examples or their order",
        "method": "test",
        "null": "null",
        "n_strata": "strata",
        "n_orders": "orders",
        "n_cut": "examples cut",
        "group_field": "group field",
        "block_field": "block field",
        "scores": "kind of scores",
        "first_tokens": "first tokens",
        "effect_unit": "unit of the effect",
    },
    flags=_FLAGS
    | {"--separator": "separator", "--max-example-tokens": "longest example"},
    effect="effect",
    nothing=0.0,
    unit="Effects and what was detectable are in {}.",
    caption="Gain of the published order with its 95 % interval, one line a model.",
    words=ORDER_COMPARISON,
)
RANKING = ComparedKind(
    name="rankings of texts",
    design={
        "fingerprint": "texts or their labels",
        "method": "score",
        "setting": "setting of the score",
        "n_members": "members",
        "n_nonmembers": "non-members",
    },
    flags=_FLAGS
    | {
        "--length": "length",
        "--label-field": "label field",
        "--document-field": "document field",
        "--reference": "reference model",
        "--corpus": "corpus",
        "--masked-lm": "masked model",
        "--n-neighbours": "neighbours",
        "--shots": "shots",
    },
    effect="AUC",
    nothing=0.5,
    unit="AUC: how often a member scores above a non-member, with its 95 % interval.",
    caption="AUC with its 95 % interval, one line a model; at the black line members "
    "and non-members are mixed.",
    words=RANKING_COMPARISON,
)
