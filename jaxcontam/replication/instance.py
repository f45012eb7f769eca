"""An instance in two pieces, and what a completion adds to the first.

See `scoring.completer` for who writes after it.
"""

import dataclasses
import re
from typing import Literal

from jaxcontam.replication.rouge import UNSPACED
from jaxcontam.scoring.completer import Completer, Completion, without_thoughts

__all__ = ["Completer", "Completion", "Cut", "Instance"]

Cut = Literal["sentence", "inside", "pair"]
"""Where the second piece begins: after a sentence of several, inside the only one, or
with the second text of a pair."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a partition, cut in two.

    Attributes:
        first_piece: What the model is shown.
        second_piece: What the model should write if it knows the instance.
        cut: Where the second piece begins.
        group: Source that it has in common with others, as the file names it; or None.
    """

    index: int
    first_piece: str
    second_piece: str
    label: str | None
    cut: Cut
    group: str | None = None


_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
# The last line of a prompt, which some models say again before they answer.
_HEADING = re.compile(
    r"(?i)\A[\s*_#]*(?:the\s+)?(?:rest|second piece|sentence 2)(?:\s+of\s+the\s+\w+)?"
    r"[*_]*:[*_]*"
)
# "Sure! Here is the rest:", before a line end or a quotation mark.
_LEAD = re.compile(r"\A[^\n:]{1,200}:[*_]*(?:\s*\n|\s*(?=[\"\u201c\u00ab`]))")
# Fewer words may stand in a second piece by chance.
_FEWEST_WITHIN = 4


def words_of(text: str) -> list[str]:
    """Words in lower case: letters and digits, or one sign of an `UNSPACED` script."""
    return [word for word, _ in _words_with_ends(text)]


def text_key(*pieces: str) -> str:
    """Equal for texts that differ in case and white space alone."""
    return " ".join(" ".join(pieces).casefold().split())


def new_piece(instance: Instance, text: str) -> str:
    """A completion without its thoughts, and without what it repeats of the prompt.

    That is a heading, such as `Rest:`, and the first piece, whatever its case, spaces
    and marks, with all that stands before it. The first text of a pair stays: the
    second one may begin with it.
    """
    text = _HEADING.sub("", without_thoughts(text))
    if instance.cut != "pair":
        text = _behind(instance, text)
    return _HEADING.sub("", text).strip()


def possible_pieces(instance: Instance, text: str) -> tuple[str, ...]:
    """`new_piece`, and that without a line that announces it, where one seems to."""
    piece = new_piece(instance, text)
    announced = _LEAD.sub("", piece)
    if announced == piece:
        return (piece,)
    return piece, new_piece(instance, announced)


def _behind(instance: Instance, text: str) -> str:
    """Text behind the first piece; all of a text that does not repeat it."""
    first = words_of(instance.first_piece)
    n = len(first)
    if not first or words_of(instance.second_piece)[:n] == first:
        return text
    found = _words_with_ends(text)
    words = [word for word, _ in found]
    last = len(words) - n if n >= _FEWEST_WITHIN else 0
    for start in range(last + 1):
        if words[start : start + n] == first:
            # The mark that ends the first piece stays, and is no word.
            return text[found[start + n - 1][1] :]
    return text


def _words_with_ends(text: str) -> list[tuple[str, int]]:
    return [(match[0].casefold(), match.end()) for match in _WORD.finditer(text)]
