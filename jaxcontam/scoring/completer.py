"""A model that follows prompts, and readings of what it answers."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

from jaxcontam.progress import Progress

# All up to the last end of thoughts, whose beginning a chat template may have written;
# and thoughts that were cut off before their end.
_THOUGHTS = re.compile(r"(?is)\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of a model, or the server's words where it refused the request."""

    text: str
    refused: str = ""


class Completer(Protocol):
    """A model that follows prompts: one of our own, or one behind an API.

    Finished prompts are kept, so that a rerun asks for none twice.
    """

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        n_samples: int = 1,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        progress: Progress | None = None,
    ) -> list[tuple[Completion, ...]]:
        """`n_samples` answers to each prompt, in the prompts' order.

        An answer has at most `max_tokens`, and ends before the first string of `stop`.
        A temperature of 0 takes the likeliest token at each place. Seed, prompt and the
        sample's index seed each answer, where the model lets seeds be chosen. Progress
        is in answers.
        """
        ...


def without_thoughts(answer: str) -> str:
    """An answer without what a reasoning model writes for itself before it."""
    return _THOUGHTS.sub("", answer).strip()


# What a model puts before its answer.
_LABEL = re.compile(
    r"^((hidden )?(word|option)|answer|file|path)\s*:\s*|^(option\s+)?[A-Z]\s*[.):]\s+",
    re.I,
)

# What it quotes, or prints bold.
_SPAN = re.compile(r"\*\*(.+?)\*\*|\"([^\"]+)\"|\u201c(.+?)\u201d|`([^`]+)`")

# A bullet, and what makes a path one from the root.
_LEAD = re.compile(r"^([-*]\s+)?(\.?/)?")

# A path with folders and a suffix, anywhere in a line.
_FILE = re.compile(
    r"(?<![\w./-])(?:\./|/)?([\w.@+-]+(?:/[\w.@+-]+)*/[\w@+-][\w.@+-]*\.\w+)"
)

# What stands around an answer and is no part of it.
_MARKS = " \t\"'`*_.,:;!?()[]{}<>\u201c\u201d\u2018\u2019\u00ab\u00bb"


def readings(answer: str) -> tuple[str, ...]:
    """Readings of an answer's first line that says something.

    The line itself; the line without a label before it, such as `Word:` or `B.`, or a
    bullet or `./`; what it quotes or prints bold, and a path, if that is one thing.
    All as `plain_text` has them, without a reasoning model's thoughts.
    """
    lines = without_thoughts(answer).splitlines()
    line = next((line for line in lines if plain_text(line)), "")
    found = [line, _LABEL.sub("", line.strip(_MARKS))]
    spans = [next(filter(None, groups)) for groups in _SPAN.findall(line)]
    if len(spans) == 1:
        found += [spans[0], _LABEL.sub("", spans[0])]
    found.append(_LEAD.sub("", line.strip()))
    paths = {*_FILE.findall(line)}
    found += paths if len(paths) == 1 else ()
    return tuple(dict.fromkeys(filter(None, map(plain_text, found))))


def is_answer(hidden: str, given: tuple[str, ...]) -> bool:
    """True if one of an answer's readings is what was hidden."""
    return not answer_forms(hidden).isdisjoint(given)


def answer_forms(hidden: str) -> frozenset[str]:
    """Readings that match what was hidden."""
    bare = _LABEL.sub("", hidden.strip(_MARKS))
    return frozenset((plain_text(hidden), plain_text(bare)))


def plain_text(text: str) -> str:
    """A text in lower case, its white space single, without marks around it."""
    return " ".join(text.casefold().split()).strip(_MARKS)
