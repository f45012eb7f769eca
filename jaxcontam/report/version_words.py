"""Plain words for tests of versions: secrets, rewrites and answer options."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.sentences import checked_sentence, p_words


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the sentences of one kind of test say.

    Attributes:
        row: What the test has rows of.
        version: What a row holds several of.
        seen: What a small p-value shows, and what was not tested.
        unseen: What `no evidence` is about.
        more: What would make the test stronger.
        rows: (n_strata, n_orders) -> what chance chooses among.
        meaning: What a small p-value says and what it does not.
    """

    row: str
    version: str
    seen: str
    unseen: str
    more: str
    rows: str
    meaning: str


_WORDS = {
    "canary": Words(
        row="secret",
        version="sequence",
        seen="secrets seen; nothing else was tested",
        unseen="that the secrets were learned",
        more="more secrets or more held-out sequences are needed",
        rows="each of {n} secrets would be as likely as any of the held-out sequences "
        "dealt to it (up to {m})",
        meaning="A small p-value says that the model prefers secrets that were put "
        "into published text to sequences drawn like them that nobody used. It says "
        "nothing of other text. Silence says that the secrets were not learned, which "
        "a model that saw them a few times need not have done.",
    ),
    "variants": Words(
        row="text",
        version="version",
        seen="published wording seen, other wordings not tested",
        unseen="that the published wording was seen",
        more="more texts or more rewrites are needed",
        rows="in each of {n} texts the published version would be as likely as any of "
        "its rewrites (up to {m})",
        meaning="A small p-value says that the model prefers the published wording to "
        "rewrites of it. If the published version was drawn at random among all "
        "versions, a model that never saw it has no way to do that; if it was not, a "
        "taste for its style may be the whole reason.",
    ),
    "options": Words(
        row="item",
        version="order of options",
        seen="options seen in their published order, other forms not tested",
        unseen="that its options were seen in their published order",
        more="more items are needed",
        rows="in each of {n} items the published order of the options would be as "
        "likely as any other that was scored (up to {m})",
        meaning="A small p-value says that the model prefers the published order of "
        "the answer options, item by item. It needs nothing of the order of the file. "
        "Silence does not say that the items were never seen: copies with shuffled "
        "options leave no trace in it.",
    ),
}
_OPTIONS = (
    "that, before any model was trained, the author put the {which} of each item in no "
    "particular order; items with sorted options, numbers, or options that name places "
    "were left out"
)
_ASSUMED = {
    ("canary", "designed randomisation"): "that the secrets were drawn like the "
    "held-out sequences, and these were never used",
    ("variants", "designed randomisation"): "that the published version of each text "
    "was drawn at random among all its versions, as was declared",
    ("variants", "exchangeability of versions (declared)"): "that a model which never "
    "saw the published versions finds no version likelier for its style: nothing "
    "vouches for that",
    ("options", "exchangeability of options"): _OPTIONS.format(which="options"),
    ("options", "exchangeability of wrong options"): _OPTIONS.format(
        which="wrong options"
    )
    + "; right options kept their places",
}


def version_words(row: Mapping[str, Any]) -> Words | None:
    """The words of a row's kind of test; None for orders of files."""
    return _WORDS.get(row["method"])


def version_block(row: Mapping[str, Any], words: Words) -> dict[str, str]:
    """The sentences of one primary test."""
    counted = words.rows.format(n=row["n_strata"], m=row["n_orders"])
    noun = words.row
    return {
        "sentence": _verdict_sentence(row, words),
        "assumed": f"Assumed: {_ASSUMED[row['method'], row['null']]}.",
        "checked": checked_sentence(row)
        if row["pretests"]
        else "Checked: nothing; how the versions were made is their owner's word.",
        "chance": f"By chance: {counted} to score best; the summed score would reach "
        f"the observed one with probability {p_words(row)}.",
        "null_caption": f"Sum of the published scores over each {noun}, and what the "
        f"same sum is when a random {words.version} stands in for the published one.",
        "evidence_caption": f"Where the evidence lies: the score of each {noun}, in "
        "the order of the file.",
    }


def alone_rows(
    row: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> list[list[str]]:
    """Each secret alone, for a table; empty for other tests and for one secret."""
    return [
        [
            other["benchmark"],
            p_words(other).removeprefix("p <= "),
            f"{other['exposure']:.1f}",
        ]
        for other in results
        if other["method"] == "canary_alone"
        and other["content_digest"] == row["content_digest"]
    ]


def _verdict_sentence(row: Mapping[str, Any], words: Words) -> str:
    exact = row["validity"] == "exact"
    test = "an exact test" if exact else "a test that nothing makes exact"
    name, p, verdict = row["benchmark"], p_words(row), row["verdict"]
    if verdict in ("contaminated", "suspected"):
        adjusted = ""
        if verdict == "suspected":
            adjusted = f" ({row['p_adjusted']:.2g} adjusted)"
        return f"{name}: {verdict}, {p} by {test}{adjusted}; {words.seen}."
    if verdict == "no evidence":
        return (
            f"{name}: no evidence {words.unseen}, {p} by {test}; an effect of "
            f"{row['mde']:.2g} {row['effect_unit']} would have been found with "
            "probability 0.8."
        )
    if verdict == "inconclusive":
        return f"{name}: inconclusive, {p} by {test}; {_why(row, words)}."
    failed = "; ".join(
        plain_name(test["name"]) for test in row["pretests"] if not test["passed"]
    )
    return (
        f"{name}: invalid design: options do not stand at random places ({failed}), so "
        "a model that never saw them could prefer their order."
    )


def _why(row: Mapping[str, Any], words: Words) -> str:
    if row["effect_se"] == 0.0:
        return "the model scores all versions alike"
    if row["mde"] is None:
        return f"this design cannot reach p = 0.001; {words.more}"
    return (
        f"only an effect of {row['mde']:.2g} {row['effect_unit']} or more would have "
        f"been found with probability 0.8; {words.more}"
    )
