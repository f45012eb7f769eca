"""Words that fields of results may hold, and what a report says of a method."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, cast

Verdict = Literal[
    "contaminated", "suspected", "inconclusive", "no evidence", "invalid design"
]
"""Words of a report for a benchmark; never that it is clean."""

Reason = Literal[
    "approximate",
    "alone",
    "attraction",
    "no reference",
    "reference ignores context",
    "reference prefers it",
    "reference prefers the reverse",
    "reference may share it",
    "reference too close",
    "weak",
]
"""Why a test gives at most `suspected`, or `inconclusive` beside a reference alike.

Its p-value is approximate; it requires a random order, and no test of direction was run
with it, or one that finds less; no reference model was scored, or no order changes its
scores, or it prefers the order too, or the reverse, or its own effect may be as much as
`REFERENCE_SHARE` of the model's, or the difference of both may be chance; the p-value
is too large.
"""

CONTAMINATED_LEVEL, SUSPECTED_LEVEL = 0.001, 0.05
"""Levels for the adjusted p-value."""

REFERENCE_LEVEL = 0.01
"""At this p-value of a reference model the file points forward by itself, at one less
it backwards."""

REFERENCE_SHARE, SHARE_LEVEL = 0.5, 0.05
"""A silent reference gains less than this share of what the model gains: a test of
that at this level, of which `ReferenceResult.half_p` is the p-value, rejects."""

DIFFERENCE_LEVEL, QUIET, ALIKE_LEVEL = 0.005, 1.1, 0.02
"""Beside a quiet reference a model's preference for an order is the larger one at the
first level; above the last the two score alike, and the file is not suspected.

A reference is quiet if its scaled standard error is at most so many times the model's.
Beside one the test of half alone lets at most one file in 1,000 through where both gain
the same; testing the difference at `CONTAMINATED_LEVEL` lost up to half of the planted
files (`eval.reference_rule`)."""

REFERENCE_READS = 0.01
"""Standard error of a reference that heeds its context, as a share of the model's."""

RankingVerdict = Literal[
    "members rank higher",
    "may rank higher",
    "no difference",
    "members rank lower",
    "inconclusive",
    "confounded",
]
"""Words of a report for a ranking, which proves nothing.

`may rank higher` where chance, fluency or the texts themselves are not ruled out;
`members rank lower` where files may have been swapped.
"""

Validity = Literal["exact", "asymptotic", "heuristic"]
"""Grounds of a p-value; `heuristic` where nothing vouches for its null."""

Null = Literal[
    "exchangeability",
    "exchangeability of blocks",
    "within-group exchangeability",
    "within-group exchangeability of blocks",
    "reversibility",
    "reversibility of blocks",
    "within-group reversibility",
    "within-group reversibility of blocks",
    "designed randomisation",
    "exchangeability (declared)",
    "exchangeability of versions (declared)",
    "exchangeability of options",
    "exchangeability of wrong options",
]
"""Assumption about a model that never saw the published version."""


def restricted_null(null: Null, *, grouped: bool, blocks: bool) -> Null:
    """The null of a test whose orders keep to groups, or move blocks of examples."""
    return cast(
        Null,
        f"{'within-group ' if grouped else ''}{null}{' of blocks' if blocks else ''}",
    )


OF_OPTIONS: tuple[Null, ...] = (
    "exchangeability of options",
    "exchangeability of wrong options",
)
"""Nulls about the order of the options of items."""


def base_null(null: Null) -> Null:
    """The null hypothesis, whatever keeps together."""
    return cast(Null, null.removeprefix("within-group ").removesuffix(" of blocks"))


NOT_CHECKED = "was claimed by whoever named it, and not checked"
"""Words about what a reference model did not see: no run can find that out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProofWords:
    """Words for a test with a p-value; by default, of orders of a file.

    Attributes:
        version: What a stratum holds several of.
        seen: What a small p-value shows, and what was not tested.
        found: What failed checks say of the file; None: what the null says.
        assumed: Null -> what it asks, where the test asks something of its own.
        approximation: What an approximate p-value asks besides.
        unchecked: Why there are no pre-tests, where there are none.
        chance: What would be seen had the model never seen the file; takes the names
            that `jaxcontam.proof.sentences.chance_sentence` lists.
        unit: Unit of the summed score; None: nats above the mean version.
        takes_reference: A reference model can be compared by the same scores.
        cures: Pre-test -> what to do if it alone fails, and the flag that does it.
        otherwise: What to do about any other failed pre-test of versions.
    """

    row: str = "stratum"
    version: str = "order"
    versions: str = "orders"
    seen: str = "order seen, presence in other orders not tested"
    unseen: str = "that its order was seen"
    more: str = "take more examples"
    found: str | None = None
    meaning: str = (
        "A small p-value says that the model prefers the published order of a file. A "
        "model that never saw the file in that order does so only by chance, if the "
        "order was drawn at random. "
    )
    silence: str = (
        "A small p-value does not say that a score is inflated, nor that other files "
        "are unaffected. A large one does not say that texts were never seen: copies "
        "in other orders, single examples and paraphrases leave no trace in an order "
        "test."
    )
    assumed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    approximation: str = ""
    unchecked: str = "since only scores were given"
    chance: str = (
        "in each of {n_strata} strata the published order would be as likely as any "
        "of {n_orders} other{s} to score best; the summed score would reach the "
        "observed one with probability {p}"
    )
    unit: str | None = None
    null_caption: str = (
        "Sum over strata of the published order's score, and the same sum with a "
        "random order in its place in each stratum."
    )
    evidence_caption: str = (
        "Where the evidence is: each stratum's score, with the first examples of the "
        "file on the left."
    )
    limits: Literal["order", "versions"] = "order"
    takes_reference: bool = False
    cures: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    otherwise: str = ""


ORDER_WORDS = ProofWords()
"""Words of a test of whole orders."""
