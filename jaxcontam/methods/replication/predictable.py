"""Second pieces that anybody could write who has read the first one, and nothing else.

A model that has not seen an instance repeats what its context repeats and goes on
counting where its context counts. Pieces that come out so are no evidence of memory.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from jaxcontam.methods.replication.instance import Instance, words_of
from jaxcontam.methods.replication.local_judge import judge_pair

# 1,000 and 3.5 are one number each; letters and digits that touch are two tokens.
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?|[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*\Z")
# With a smaller share of the reference's words a continuation is no copy of it.
_LEAST_SHARED = 0.5
# Longer periods are not looked for: tokens of a long paragraph.
_LONGEST = 400
# From here on a number is a code that nobody continues.
_LARGEST = 1e12

Rule = Callable[[Sequence[str]], str]
"""Tokens one, two and three periods ago, as far as there are some -> the next one."""

_SERIES = tuple(
    tuple(words.split())
    for words in (
        "one two three four five six seven eight nine ten eleven twelve thirteen "
        "fourteen fifteen sixteen seventeen eighteen nineteen twenty",
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh "
        "twelfth",
        "monday tuesday wednesday thursday friday saturday sunday",
        "january february march april may june july august september october november "
        "december",
        "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    )
)
"""Words that count; after the last one comes the first."""
_PLACES = {
    word: (s, i) for s, words in enumerate(_SERIES) for i, word in enumerate(words)
}


def follows_from_first(instance: Instance) -> bool:
    """Whether a continuation of the first piece by rule is a copy of the second one.

    The rules repeat the last p words of the first piece, for every p: a line again, a
    loop, a refrain. Where these are numbers, or words that count such as weekdays, they
    go on as they went from period to period: by the same step, by the same factor and
    step (three of them tell), or one further. What `judge_pair` calls a copy of the
    second piece, exact or near, follows.

    A text that continues in another way may still be easy to guess: False is no promise
    that only memory could write the second piece.
    """
    first = _tokens(instance.first_piece)
    n_new = len(_TOKEN.findall(instance.second_piece))
    wanted = Counter(words_of(instance.second_piece))
    if not wanted or not n_new:
        return False
    first = first[-3 * _LONGEST :]
    tried: set[str] = set()
    for period in range(1, min(len(first), _LONGEST) + 1):
        for rule in (_same, _affine, _one_further):
            text = _continued(first, n_new, period, rule)
            if text in tried:
                continue
            tried.add(text)
            shared = (Counter(words_of(text)) & wanted).total() / wanted.total()
            if shared < _LEAST_SHARED:
                continue
            if judge_pair(instance.second_piece, text) != "no":
                return True
    return False


def _tokens(text: str) -> list[tuple[str, str]]:
    """What stands before each token, and the token."""
    found, end = [], 0
    for match in _TOKEN.finditer(text):
        # The first one has nothing before it, and needs it when it comes again.
        found.append((text[end : match.start()] if end else " ", match[0].casefold()))
        end = match.end()
    return found


def _continued(
    first: Sequence[tuple[str, str]], n_new: int, period: int, rule: Rule
) -> str:
    """What a rule writes after the first piece."""
    tokens = list(first)
    for _ in range(n_new):
        before = tokens[-period : -3 * period - 1 : -period]
        tokens.append((before[0][0], rule([token for _, token in before])))
    return "".join(lead + token for lead, token in tokens[len(first) :])


def _same(before: Sequence[str]) -> str:
    return before[0]


def _one_further(before: Sequence[str]) -> str:
    """The next number or word of a series; any other word again."""
    token = before[0]
    if token in _PLACES:
        return _of_series(token, 1)
    if _NUMBER.match(token):
        return _written(_value(token) + 1, token)
    return token


def _affine(before: Sequence[str]) -> str:
    """What continues x' = a x + b, with a = 1 where two numbers are known."""
    token = before[0]
    if len(before) < 2:
        return token
    if token in _PLACES and before[1] in _PLACES:
        (series, place), (other, earlier) = _PLACES[token], _PLACES[before[1]]
        return _of_series(token, place - earlier) if series == other else token
    if not all(map(_NUMBER.match, before[:2])):
        return token
    last, previous = map(_value, before[:2])
    factor = 1.0
    if len(before) > 2 and _NUMBER.match(before[2]):
        step = previous - _value(before[2])
        factor = (last - previous) / step if step else 1.0
    return _written(last + factor * (last - previous), token)


def _of_series(token: str, step: int) -> str:
    series, place = _PLACES[token]
    return _SERIES[series][(place + step) % len(_SERIES[series])]


def _value(token: str) -> float:
    return float(token.replace(",", ""))


def _written(value: float, like: str) -> str:
    """A number as another one is written: its decimals, zeros and commas."""
    if not abs(value) < _LARGEST:
        return like
    whole, _, decimals = like.partition(".")
    text = f"{abs(value):,.{len(decimals)}f}"
    if "," not in whole:
        text = text.replace(",", "")
    return text.zfill(len(like)) if whole.startswith("0") else text
