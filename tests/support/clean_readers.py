"""Texts, and clean readers: functions of texts that never saw a file.

A reader scores line after line by the line before it, so that it says the same of an
example after another one, and of a whole order of examples.
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from eval.natural_order.words import OF_TOPIC, pseudoword

# Nats of a character of a line whatever stands before it, and of chance.
_OWN, _NOISE = 0.05, 0.3
# Nats of a line: what a kernel gains leaves it a log-probability.
_BASE = -30.0
_HEAVY = 25.0


def write(path: Path, lines: Iterable[str | dict[str, Any]]) -> Path:
    """A file of lines, or of records."""
    texts = (one if isinstance(one, str) else json.dumps(one) for one in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def texts(rng: Random, n: int, *, words: Callable[[int], int]) -> list[str]:
    """Distinct texts about topics; `words` gives the number of words of text i."""
    made = []
    for i in range(n):
        nouns = rng.choice(OF_TOPIC).nouns
        own = pseudoword(rng, 3)
        made.append(" ".join([own, *rng.choices(nouns, k=words(i))]))
    return made


class Reader:
    """log p(continuation | context) of (context, continuation) strings, in nats.

    `kernel` names what it looks at, `seed` is that of its noise.
    """

    def __init__(self, kernel: str, seed: int):
        """Choose what it looks at."""
        self.kernel, self.seed = kernel, seed
        self.__name__ = f"{kernel.replace(' ', '-')}-{seed}"

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Score continuations."""
        return [self.of_text(context, own) for context, own in pairs]

    def of_text(self, context: str, own: str) -> float:
        """Score one continuation, line by line."""
        before = context.removesuffix("\n").rpartition("\n")[2]
        total = 0.0
        for line in own.removesuffix("\n").split("\n"):
            total += _BASE + self._of_line(before, line)
            before = line
        return total

    def _of_line(self, before: str, line: str) -> float:
        if self.kernel == "constant":
            return 0.0
        found = KERNELS[self.kernel](before, line, chance(self.seed, before, line))
        return found - _OWN * len(line) * (self.kernel != "discrete")


def chance(seed: int, *words: str) -> float:
    """A number in (0, 1) that depends on the words alone."""
    digest = hashlib.blake2b("\0".join((str(seed), *words)).encode(), digest_size=8)
    return (int.from_bytes(digest.digest()) + 0.5) / 2**64


@functools.lru_cache(maxsize=1 << 16)
def _words(line: str) -> frozenset[str]:
    return frozenset(line.split())


KERNELS: Mapping[str, Callable[[str, str, float], float]] = {
    "length": lambda a, b, u: -0.1 * min(60, abs(len(a) - len(b))) + _NOISE * u,
    "shorter": lambda a, b, u: 2.0 * (len(b) < len(a)) + _NOISE * u,
    "longer": lambda a, b, u: 2.0 * (len(b) > len(a)) + _NOISE * u,
    "copy": lambda a, b, u: 2.0 * len(_words(a) & _words(b)) + _NOISE * u,
    "alphabet": lambda a, b, u: 2.0 * (b > a) + _NOISE * u,
    # What stands first costs by its length; the rest is chance.
    "first": lambda a, b, u: -0.1 * min(100, len(b)) * (not a) + _NOISE * u,
    "noise": lambda a, b, u: 2.0 * math.sqrt(-2 * math.log(u)) * math.cos(2e9 * u),
    "cauchy": lambda a, b, u: max(-1e4, min(_HEAVY, math.tan(math.pi * (u - 0.5)))),
    "discrete": lambda a, b, u: float(u < 0.3),
    "constant": lambda a, b, u: 0.0,
}
"""(line before, line, chance of both) -> nats."""


class Cell(NamedTuple):
    """A command with one of its tests, on one kind of file, of one clean model.

    Where it `holds`, the file satisfies the null hypothesis of the test, whose p-value
    is said to be exact, so that its level is held too; elsewhere verdicts alone are.
    """

    command: str
    test: str
    kind: str = ""
    reader: str = ""
    holds: bool = True


class Finding(NamedTuple):
    """Finding on one file; `p` is None where nothing was tested."""

    cell: Cell
    p: float | None
    verdict: str | None


def drawn_cell(
    command: str, seed: int, kinds: Any, readers: Any
) -> tuple[Random, Any, str]:
    """A file's random state, kind and reader: each pair of these equally often."""
    kinds, readers = tuple(kinds), tuple(readers)
    reader = readers[seed // len(kinds) % len(readers)]
    return Random(f"{command} {seed}"), kinds[seed % len(kinds)], reader


def silent(done: int, total: int) -> None:
    """No bar."""
