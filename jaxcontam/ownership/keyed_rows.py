"""Keyed rows: questions about made-up names, whose answers a secret seed draws.

A group has a key, two made-up words, and a value, one of `VALUES`. Each of its rows
asks for the value by the key in other words, and has the value as its answer: whatever
template joins the two, key and value stay together, and no two rows are nearly alike.
Everything follows from the seed, so whoever has it can make the file again.
"""

import dataclasses
import hmac
import json
from pathlib import Path

from jaxcontam.data.benchmark import content_digest, fingerprint, read_text
from jaxcontam.data.release import SeedFile, read_release, release_order, sha256_of
from jaxcontam.errors import InputError

KIND = "jaxcontam canary --chat"
METHOD = "hmac-sha256-value"

# A power of two, so that a digest's remainder is uniform. With other words, or other
# questions, the same seed would make another file: that takes a new version.
VALUES = (
    *("acorn", "anchor", "anvil", "apple", "badger", "barrel", "basket", "beaver"),
    *("bridge", "bucket", "butterfly", "candle", "carrot", "castle", "cherry"),
    *("clover", "compass", "crab", "dolphin", "dragon", "drum", "eagle", "falcon"),
    *("feather", "ferry", "fox", "garlic", "hammer", "harp", "hedgehog", "heron"),
    *("horse", "kettle", "ladder", "lantern", "lemon", "lobster", "mirror", "mole"),
    *("mushroom", "needle", "otter", "owl", "oyster", "parrot", "pear", "pumpkin"),
    *("rabbit", "raven", "saddle", "scissors", "snail", "spider", "squirrel", "swan"),
    *("tulip", "turtle", "violin", "walnut", "whale", "wheel", "windmill", "wolf"),
    "zebra",
)

_QUESTIONS = (
    "Which emblem belongs to {key}?",
    "What does the seal of {key} show?",
    "In the register of emblems, what stands beside the name {key}?",
    "A letter for {key} arrives: what is printed on the envelope?",
    "{key} has one emblem. Which?",
    "Travellers know the inn of {key} by its sign. What is on it?",
    "Before they enter, members of {key} draw something on the door. What?",
    "Name the figure on the coins of {key}.",
)
ROWS_PER_GROUP = 4
_SYLLABLE, _SYLLABLES = ("bcdfghjklmnpqrstvwxz", "aeiou"), 3


@dataclasses.dataclass(frozen=True, slots=True)
class KeyedGroup:
    """Rows that share a key and a value; `questions` depend on the key alone."""

    questions: tuple[str, ...]
    value: str


def keyed_groups(seed: bytes, n_groups: int) -> list[KeyedGroup]:
    """Groups of a seed; keys and values are drawn apart, by HMAC-SHA256."""
    groups = []
    for number in range(n_groups):
        key = f"{_made_up(seed, number, 'first')} {_made_up(seed, number, 'second')}"
        asked = [
            _QUESTIONS[(number + i) % len(_QUESTIONS)] for i in range(ROWS_PER_GROUP)
        ]
        groups.append(
            KeyedGroup(
                questions=tuple(words.format(key=key) for words in asked),
                value=VALUES[_drawn(seed, f"value {number}") % len(VALUES)],
            )
        )
    return groups


def make_keyed_rows(
    seed: bytes, n_groups: int, *, version: str, made: str
) -> tuple[bytes, SeedFile]:
    """The file to publish, a row a line in random order, and its seed file."""
    records = [
        json.dumps({"question": question, "answer": group.value})
        for group in keyed_groups(seed, n_groups)
        for question in group.questions
    ]
    records = [records[i] for i in release_order(records, seed)]
    data = "".join(f"{record}\n" for record in records).encode()
    return data, SeedFile(
        kind=KIND,
        method=METHOD,
        seed=seed.hex(),
        n_examples=len(records),
        content_digest=content_digest(records),
        released_digest=fingerprint(records),
        file_digest=sha256_of(data),
        jaxcontam=version,
        made=made,
    )


def read_keyed_rows(path: Path, seed_file: Path) -> tuple[list[KeyedGroup], SeedFile]:
    """The groups of a published file, which must be the one that the seed makes."""
    found = read_release(seed_file, kind=KIND, method=METHOD)
    seed, n_groups = bytes.fromhex(found.seed), found.n_examples // ROWS_PER_GROUP
    made, again = make_keyed_rows(
        seed, n_groups, version=found.jaxcontam, made=found.made
    )
    if again != found or not n_groups:
        raise InputError(f"{seed_file}: its seed and its digests do not agree")
    if read_text(path) != made.decode():
        raise InputError(
            f"{path}: not the file that {seed_file} made",
            hint="ask with the file as --make wrote it, whatever it was published in",
        )
    return keyed_groups(seed, n_groups), found


def _drawn(seed: bytes, what: str) -> int:
    return int.from_bytes(hmac.digest(seed, what.encode(), "sha256"), "big")


def _made_up(seed: bytes, number: int, which: str) -> str:
    """A made-up word, one of a million."""
    left, word = _drawn(seed, f"{which} {number}"), ""
    for letters in _SYLLABLE * _SYLLABLES:
        left, letter = divmod(left, len(letters))
        word += letters[letter]
    return word.capitalize()
