"""Canaries: secret sequences that were injected, among held-out twins.

Dimension key
    K  secrets
    N  held-out sequences
"""

import dataclasses
import math
import secrets
from collections.abc import Sequence
from typing import Literal

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.proof.result import DESIGNED
from jaxcontam.proof.versions import VersionMethod, version_numbers
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.result import OrderNumbers

CanaryKind = Literal["words", "digits"]
EFFECT_UNIT = "nats per secret"
MIN_EFFECT = 5.0
"""Nats a secret: it is then about 150 times likelier than it was."""

# A secret of either kind holds about 150 bits: nobody guesses it, and it is long
# enough that a model which saw it often gives it a high probability.
_N_WORDS, _SYLLABLES = 8, 3
_N_DIGITS = 48
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CanaryRows:
    """Rows of the joint test and of each secret alone.

    Attributes:
        joint: K arrays, a secret's score and those of the held-out ones dealt to it:
            no held-out sequence stands in two rows, so the rows are independent.
        alone: K arrays, a secret's score and those of all held-out ones: each gives a
            valid p-value, but they share the held-out ones.
    """

    joint: tuple[np.ndarray, ...]
    alone: tuple[np.ndarray, ...]


def canary_rows(
    secret_K: np.ndarray, held_out_N: np.ndarray, *, seed: int, content_digest: str
) -> CanaryRows:
    """Deal held-out scores to secrets at random, as evenly as they go.

    The deal is drawn, never taken from the order of the files: sorted files would make
    it depend on what is scored. Each secret needs at least one.
    """
    K, N = len(secret_K), len(held_out_N)
    if N < K:
        raise InputError(
            f"{N} held-out sequences for {K} secrets",
            hint="each secret needs at least one; 999 give p-values down to 0.001",
        )
    dealt_N = row_generator(seed, content_digest).permutation(N)
    return CanaryRows(
        joint=tuple(
            np.concatenate([secret_K[k : k + 1], held_out_N[dealt_N[k::K]]])
            for k in range(K)
        ),
        alone=tuple(
            np.concatenate([secret_K[k : k + 1], held_out_N]) for k in range(K)
        ),
    )


def alone_numbers(row_M: np.ndarray, *, seed: int) -> OrderNumbers:
    """A secret among all held-out ones: p = (1 + #{held-out >= secret}) / (N + 1).

    Null hypothesis: the secret was drawn like the held-out ones, and the model saw none
    of them. Ties count against detection. The seed changes nothing: p is a count.

    Source:
        Phipson and Smyth (2010) for the added 1.
    """
    numbers = version_numbers([row_M], seed)
    return dataclasses.replace(
        numbers,
        p_monte_carlo=numbers.p_value,
        exposure=exposure(numbers.p_value, len(row_M)),
    )


def exposure(p_value: float, n_candidates: int) -> float:
    """log2(candidates) - log2(rank of the secret among them), in bits.

    The rank counts the secret and everything that scores as high; so the p-value is
    rank / candidates, and the exposure its negative logarithm. 0 bits is the last
    rank, log2(candidates) the first.

    Source:
        Carlini et al., "The Secret Sharer", arXiv:1802.08232; with the held-out
        sequences in place of the whole space of secrets.
    """
    return math.log2(n_candidates) - math.log2(round(p_value * n_candidates))


def draw_sequences(
    n: int, *, kind: CanaryKind = "words", prefix: str = ""
) -> list[str]:
    """`n` different random sequences, from the operating system's randomness."""
    drawn: dict[str, None] = {}
    while len(drawn) < n:
        drawn[prefix + (_words() if kind == "words" else _digits())] = None
    return list(drawn)


def _words() -> str:
    return " ".join(
        "".join(
            secrets.choice(_CONSONANTS) + secrets.choice(_VOWELS)
            for _ in range(_SYLLABLES)
        )
        for _ in range(_N_WORDS)
    )


def _digits() -> str:
    groups: Sequence[str] = [
        f"{secrets.randbelow(10_000):04d}" for _ in range(_N_DIGITS // 4)
    ]
    return " ".join(groups)


def _alone_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    (row,) = rows
    return alone_numbers(row, seed=seed)


def _joint_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """Joint test of all secrets; with one, the test of that secret alone."""
    if len(rows) == 1:
        return alone_numbers(rows[0], seed=seed)
    return version_numbers(rows, seed)


_WORDS = ProofWords(
    row="secret",
    version="sequence",
    versions="sequences",
    seen="secrets seen; nothing else was tested",
    unseen="that the secrets were learned",
    more="more secrets or more held-out sequences are needed",
    meaning="A small p-value says that the model prefers secrets that were put into "
    "published text to sequences drawn like them that nobody used. It says nothing of "
    "other text. ",
    silence="Silence says that the secrets were not learned, which a model that saw "
    "them a few times need not have done.",
    assumed={
        DESIGNED: "that the secrets were drawn like the held-out sequences, and these "
        "were never used",
    },
    unchecked="since how the sequences were made is their owner's word",
    chance="each of {n_strata} secrets would be as likely as any of the held-out "
    "sequences dealt to it (up to {n_orders}) to score best; the summed score would "
    "reach the observed one with probability {p}",
    null_caption="Sum of the published scores over each secret, and what the same sum "
    "is when a random sequence stands in for the published one.",
    evidence_caption="Where the evidence lies: the score of each secret, in the order "
    "of the file.",
    limits="versions",
)

METHOD = VersionMethod(
    name="canary",
    command="canary",
    analyse=_joint_numbers,
    in_random_places=False,
    least_effects={EFFECT_UNIT: MIN_EFFECT},
    null=DESIGNED,
    validity="exact",
    cost="each secret and each held-out sequence once",
    finds="secrets that were injected and learned, all of them together",
    source="Carlini et al. 2019, arXiv:1802.08232; Meeus et al. 2024 (copyright traps)",
    words=_WORDS,
)

ALONE = dataclasses.replace(
    METHOD,
    name="canary_alone",
    analyse=_alone_numbers,
    cost="no more than canary",
    finds="one secret among all held-out sequences: its p-value and exposure",
    source="Carlini et al. 2019, arXiv:1802.08232",
)
