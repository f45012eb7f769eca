"""Words that two texts share: ROUGE-L, by their longest common subsequence."""

import dataclasses
import re
from collections.abc import Sequence

UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces between words, for a class of a pattern: Thai,
Lao, Japanese and Chinese. Each counts as a word."""
ANY_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
"""A word of any script."""

_WORD = re.compile(r"[a-z0-9]+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RougeL:
    """Overlap of a candidate with a reference; each share is 0 where it has no words.

    Attributes:
        recall: Longest common subsequence over words of the reference.
        precision: The same over words of the candidate.
        f1: Harmonic mean of both, 0 where both are 0.
    """

    recall: float
    precision: float
    f1: float


def rouge_l(reference: str, candidate: str) -> RougeL:
    """ROUGE-L of a candidate against a reference.

    Source:
        Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries". Words and
        the weight of F (beta = 1) are those of the Python package rouge_score without
        its stemmer, which published numbers on completions use; rapidfuzz finds the
        subsequence.
    """
    reference_words, candidate_words = rouge_words(reference), rouge_words(candidate)
    if not reference_words or not candidate_words:
        return RougeL(recall=0.0, precision=0.0, f1=0.0)
    common = common_words(reference_words, candidate_words)
    recall, precision = common / len(reference_words), common / len(candidate_words)
    f1 = 2 * common / (len(reference_words) + len(candidate_words))
    return RougeL(recall=recall, precision=precision, f1=f1)


def rouge_words(text: str) -> list[str]:
    """Runs of ASCII letters and digits in lower case; all else separates them.

    So a text in another alphabet has no words, and `it's` has two.
    """
    return _WORD.findall(text.lower())


def has_rouge_words(text: str) -> bool:
    """Tell if at least half of a text's letters are Latin, as ROUGE-L requires.

    ROUGE-L finds no words, or only the few Latin ones, in a text of another alphabet,
    and its score would be meaningless. Accents only split words.
    """
    letters = list(filter(str.isalnum, text))
    n_latin = sum(one < "\u0250" or "\u1e00" <= one < "\u1f00" for one in letters)
    return 2 * n_latin >= len(letters) and bool(rouge_words(text))


def common_words(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    from rapidfuzz.distance import LCSseq

    return LCSseq.similarity(a, b)


def words_f1(a: Sequence[str], b: Sequence[str]) -> float:
    """Harmonic mean of the shares of words that are common; 0 where one has none."""
    return 2 * common_words(a, b) / (len(a) + len(b)) if a and b else 0.0


def stands_within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """True if words, which hold no space, stand in others one after the other."""
    return f" {' '.join(wanted)} " in f" {' '.join(words)} "
