"""Judges of completions: the local one, a chat model, and people.

The local judge needs no model: equality of words, and two shares of them. Two of its
constants are chosen by cross-validation on the 280 completions that came with the
paper, of which people call 20 copies; the others were set by hand on half of them. So
how well the rule agrees with those people is no forecast of how well it does elsewhere.
Second pieces that follow from the first one by rule are found here as well: anybody
writes those who has read the first piece, and nothing else.
"""

import dataclasses
import hashlib
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from jaxcontam.data.benchmark import read_text
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.replication.instances import (
    PLACE,
    Instance,
    filled,
    new_piece,
    possible_pieces,
    words_of,
)
from jaxcontam.replication.overlap import common_words, stands_within
from jaxcontam.scoring.completer import Completer, Completion, without_thoughts
from jaxcontam.terminal_text import printable

Judgement = Literal["exact", "near", "no"]
"""An exact copy of the reference, a near-exact one, or none."""

Labels = Sequence[Judgement | None]
"""One per completion; None where nobody judged it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Labels by a judge; refused are completions, or their judgements."""

    labels: tuple[Judgement | None, ...]
    n_unparsed: int = 0
    n_refused: int = 0


_LABELS: dict[Judgement, tuple[str, ...]] = {
    "exact": ("exact", "exact match", "yes (exact match)", "e"),
    "near": (
        *("near", "near-exact", "near exact", "near match", "near-exact match"),
        *("yes (near-exact match)", "n-e"),
    ),
    "no": ("no", "no match", "inexact", "inexact match", "none", "n"),
}


def judgement_of(word: str) -> Judgement | None:
    """Label that a person's word in a sheet means; None for any other word."""
    said = " ".join(word.lower().split()).rstrip(".")
    return next((label for label, words in _LABELS.items() if said in words), None)


def is_copy(label: Judgement | None) -> bool:
    """True if a completion was called an exact or a near-exact copy."""
    return label in ("exact", "near")


# Changes with any constant or rule of `judge_pair`.
_JUDGE_VERSION = "local-3"

NEAR = 0.68
"""`near_score` from which a completion is called near-exact."""

NEAR_BLEURT = 0.765
"""Score of BLEURT-20 from which it is, where such scores are at hand. Both are what
`python -m eval.replication --recorded DIR` chooses."""

# A reference of fewer words is met by chance.
_FEWEST_NEAR = 3
# A copy of this many words counts anywhere in a completion.
_FEWEST_WITHIN = 8
# Three words of a long reference are no copy of it, though all of them are right.
_LEAST_RECALL = 0.25
# Nor are words such as "the" and "over", in whatever order they come.
_FEWEST_CONTENT = 2
_STRONGEST: tuple[Judgement, ...] = ("exact", "near", "no")
# A model that does not stop is judged on as many words as the reference has.
_RUNS_ON = 2
_FUNCTION_WORDS = frozenset(
    words_of(
        "a about after again all also am an and any are as at be because been before "
        "being but by can could did do does for from had has have he her here him his "
        "how i if in into is it its just me more most my no nor not now of off on once "
        "one only or other our out over own s same she should so some such t than that "
        "the their them then there these they this those through to too under until up "
        "very was we were what when where which while who whom why will with would you "
        "your"
    )
)


def judge_version(*, with_bleurt: bool = False) -> str:
    """Name of the local judge, and whether it has scores of BLEURT-20 to read."""
    return f"{_JUDGE_VERSION}+bleurt-20" if with_bleurt else _JUDGE_VERSION


def judge_local(
    instances: Sequence[Instance],
    completions: Sequence[Completion],
    *,
    bleurt: np.ndarray | None = None,
    near: float = NEAR,
) -> Judged:
    """Say of each completion whether it is an exact or a near-exact copy.

    Refused ones are counted, not judged. `bleurt` (N,) are scores of BLEURT-20, nan
    where there is none, which find copies in other words; no other model's scores will
    do. Another `near` than the default is for studies.
    """
    labels: list[Judgement | None] = []
    pairs = zip(instances, completions, strict=True)
    for i, (instance, completion) in enumerate(pairs):
        if completion.refused:
            labels.append(None)
            continue
        meaning = None if bleurt is None else float(bleurt[i])
        found: set[Judgement] = {
            judge_pair(instance.second_piece, candidate, bleurt=meaning, near=near)
            for candidate in possible_pieces(instance, completion.text)
        }
        labels.append(min(found, key=_STRONGEST.index))
    return Judged(labels=tuple(labels), n_refused=labels.count(None))


def judge_pair(
    reference: str, candidate: str, *, bleurt: float | None = None, near: float = NEAR
) -> Judgement:
    """Judge a candidate: an exact copy of the reference, a near-exact one, or none.

    Exact: the same words, whatever their case and the marks between them; or, of a
    reference of 8 words or more, the same words one after the other anywhere in the
    candidate. Near-exact: at least 3 words each, a quarter of the reference's words in
    order, two of its content words and a quarter of them, and a `near_score` of 0.68
    or more or a BLEURT-20 score of 0.765 or more. A candidate of more than twice the
    reference's words is cut to as many before that.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, section 3.1, ask a model or a human.
    """
    wanted, found = words_of(reference), words_of(candidate)
    if not wanted or not found:
        return "no"
    if found == wanted:
        return "exact"
    if len(wanted) >= _FEWEST_WITHIN and stands_within(wanted, found):
        return "exact"
    if min(len(wanted), len(found)) < _FEWEST_NEAR:
        return "no"
    if len(found) > _RUNS_ON * len(wanted):
        found = found[: len(wanted)]
    if common_words(wanted, found) / len(wanted) < _LEAST_RECALL:
        return "no"
    content = _content(wanted)
    n_shared = (Counter(content) & Counter(found)).total()
    if n_shared < max(min(_FEWEST_CONTENT, len(content)), _LEAST_RECALL * len(content)):
        return "no"
    # A nan is at least nothing.
    has_meaning = bleurt is not None and bleurt >= NEAR_BLEURT
    return "near" if has_meaning or near_score(wanted, found) >= near else "no"


def near_score(wanted: Sequence[str], found: Sequence[str]) -> float:
    """Share of a candidate's words that the reference has, from 0 to 1.

    The mean of the precision of ROUGE-L and of that of content words. Extra text lowers
    it; what is left out of the reference does not.
    """
    if not wanted or not found:
        return 0.0
    in_order = common_words(wanted, found) / len(found)
    content = _content(found)
    if not content:
        return in_order
    shared = (Counter(content) & Counter(wanted)).total()
    return (in_order + shared / len(content)) / 2


def closeness(instance: Instance, completion: Completion) -> float:
    """Share of the second piece's content words that a completion begins with.

    From 0 to 1, in whatever order, among twice as many words as the second piece has:
    how well a model guesses, long before anything is a copy.
    """
    wanted = words_of(instance.second_piece)
    found = words_of(new_piece(instance, completion.text))[: _RUNS_ON * len(wanted)]
    content = _content(wanted) or wanted
    shared = (Counter(content) & Counter(found)).total()
    return shared / len(content) if content else 0.0


def _content(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _FUNCTION_WORDS]


def is_short(instance: Instance) -> bool:
    """True if a reference has so few words, one or two, that chance meets it."""
    return len(words_of(instance.second_piece)) < _FEWEST_NEAR


def instance_warnings(instances: Sequence[Instance]) -> tuple[str, ...]:
    """Warnings about instances that are easy to "copy" without having seen them."""
    warnings = []
    pairs = [one for one in instances if one.cut == "pair"]
    if n_alike := sum(
        judge_pair(one.second_piece, one.first_piece) != "no" for one in pairs
    ):
        warnings.append(
            f"in {n_alike} of {len(instances)} pairs a model that only repeats the "
            "first text would be judged to copy the second"
        )
    if n_short := sum(map(is_short, instances)):
        warnings.append(
            f"{n_short} of {len(instances)} references have fewer than {_FEWEST_NEAR} "
            "words, so a model that knows the answer matches them without copying"
        )
    return tuple(warnings)


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
    """True if a continuation of the first piece by rule is a copy of the second one.

    The rules repeat the last p words of the first piece, for every p. Where these are
    numbers, or words that count such as weekdays, they go on as they went from period
    to period: by the same step, by the same factor and step (three of them tell), or
    one further. A model that has not seen an instance writes it, too.

    A text that continues in another way may still be easy to guess: False is no promise
    that only memory could write the second piece.
    """
    first = _tokens(instance.first_piece)[-3 * _LONGEST :]
    n_new = len(_TOKEN.findall(instance.second_piece))
    wanted = Counter(words_of(instance.second_piece))
    if not wanted or not n_new:
        return False
    tried: set[str] = set()
    for period in range(1, min(len(first), _LONGEST) + 1):
        for rule in (operator.itemgetter(0), _affine, _one_further):
            text = _continued(first, n_new, period, rule)
            if text in tried:
                continue
            tried.add(text)
            shared = (Counter(words_of(text)) & wanted).total() / wanted.total()
            is_near = shared >= _LEAST_SHARED
            if is_near and judge_pair(instance.second_piece, text) != "no":
                return True
    return False


def _tokens(text: str) -> list[tuple[str, str]]:
    """Each token, after the text before it."""
    found, end = [], 0
    for match in _TOKEN.finditer(text):
        # The first one has nothing before it, and needs it when it comes again.
        found.append((text[end : match.start()] if end else " ", match[0].casefold()))
        end = match.end()
    return found


def _continued(
    first: Sequence[tuple[str, str]], n_new: int, period: int, rule: Rule
) -> str:
    tokens = list(first)
    for _ in range(n_new):
        before = tokens[-period : -3 * period - 1 : -period]
        tokens.append((before[0][0], rule([token for _, token in before])))
    return "".join(lead + token for lead, token in tokens[len(first) :])


def _one_further(before: Sequence[str]) -> str:
    """The next number or word of a series; any other word again."""
    token = before[0]
    if token in _PLACES:
        return _of_series(token, 1)
    if _NUMBER.match(token):
        return _written(_value(token) + 1, token)
    return token


def _affine(before: Sequence[str]) -> str:
    """Continuation of x' = a x + b, with a = 1 where two numbers are known."""
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


_PROMPT = """\
Somebody tried to write down a text from memory. Compare what they wrote (the candidate)
with the original (the reference), and say whether they reproduced it. Give one of
these three answers and nothing else:
Yes (exact match)
Yes (near-exact match)
No
A near-exact match follows the reference phrase by phrase: the same statement, built the
same way, in nearly the same words. A candidate that is merely about the same subject,
or that fits as well as any other, is a No.

Example 1
Reference: The ferry to the island leaves at noon.
Candidate: The ferry to the island leaves at noon.
Answer: Yes (exact match)

Example 2
Reference: has closed its only coal mine after ninety years, with 240 jobs lost.
Candidate: has closed its only coal mine after ninety years, with 240 jobs lost. The \
owner said that falling prices had left it no other choice.
Answer: Yes (near-exact match)

Example 3
Reference: Grandmother's clock stopped because nobody had wound it.
Candidate: The clock of the grandmother stopped since nobody had wound it.
Answer: Yes (near-exact match)

Example 4
Reference: Tova lends Ilan her bicycle until Friday, as his was stolen.
Candidate: Tova will lend Ilan her bicycle until Friday because his was stolen.
Answer: Yes (near-exact match)

Example 5
Reference: The museum bought the painting from a dealer in Ghent in 1911.
Candidate: In 1911 the museum bought the painting from a dealer in Ghent.
Answer: Yes (near-exact match)

Now this one
Reference: {reference}
Candidate: {candidate}
Answer:"""
# Enough for a model that says its reasons; one that thinks aloud needs more.
_MOST_TOKENS = 500
_MARKS = re.compile(r"[*_`\"'\u201c\u201d\u2018\u2019#>]+")
_ANSWER = re.compile(
    r"(?i)^\W*(?:(?:final\s+)?answer\s*(?:is)?\s*[:=-]?\s*)?"
    r"(?:(?P<no>no)\b(?!.*\bexact\b)"
    r"|(?:yes\b\W*)?(?P<near>near\W*exact|near\W*match)\b"
    r"|(?:yes\b\W*)?(?P<exact>exact)\b"
    r"|(?P<yes>yes)\W*$)"
    # "Exact match: no" is a table of both questions, and no answer.
    r"(?!\W*(?:match\b)?\W*(?:yes|no|true|false)\b)"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JudgePrompt:
    """A question about a reference and a candidate, which its places stand for.

    Its answers are grades or judgements; who asks knows which. The version is a name
    with a digest of the text.
    """

    text: str
    version: str

    @classmethod
    def of(cls, name: str, text: str) -> "JudgePrompt":
        """The question with its version."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return cls(text=text, version=f"{name}@{digest}")

    def asked(self, reference: str, candidate: str) -> str:
        """The question about one pair; braces inside a text stay as they are."""
        return filled(self.text, reference=reference, candidate=candidate.strip())


OWN_PROMPT = JudgePrompt.of("llm-1", _PROMPT)
"""Our words, with five examples of our own."""

_JUDGE_PLACES = ("reference", "candidate")


def load_judge_prompt(path: Path) -> JudgePrompt:
    """The question in a text file; InputError if it lacks a place or has another."""
    if path.suffix.lower() != ".txt":
        raise InputError(f"{path}: a judge's prompt is a .txt file")
    text = read_text(path).replace("\r\n", "\n").strip("\n")
    hint = "places: " + " ".join(f"{{{place}}}" for place in _JUDGE_PLACES)
    found = dict.fromkeys(PLACE.findall(text))
    for place in _JUDGE_PLACES:
        if place not in found:
            raise InputError(f"{path}: no place {{{place}}}", hint=hint)
    if others := [place for place in found if place not in _JUDGE_PLACES]:
        raise InputError(f"{path}: unknown place {{{others[0]}}}", hint=hint)
    return JudgePrompt.of(printable(path.stem), text)


def judge_llm(
    completer: Completer,
    instances: Sequence[Instance],
    completions: Sequence[Completion],
    *,
    prompt: JudgePrompt = OWN_PROMPT,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judged:
    """Ask a chat model about each completion, at temperature 0.

    Nobody is asked about empty completions, which are no copies. Whatever the words of
    the prompt are, answers are those of `parse_judgement`.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, figure 2: the plan of its prompt, with
        examples of our own.
    """
    labels: list[Judgement | None] = [
        None if completion.refused else "no" for completion in completions
    ]
    n_refused = labels.count(None)
    prompts = {
        i: prompt.asked(instance.second_piece, candidate)
        for i, instance in enumerate(instances)
        if not completions[i].refused
        and (candidate := new_piece(instance, completions[i].text))
    }
    answers = []
    if prompts:
        answers = completer.complete(
            [*prompts.values()], max_tokens=_MOST_TOKENS, seed=seed, progress=progress
        )
    for i, (answer,) in zip(prompts, answers, strict=True):
        labels[i] = None if answer.refused else parse_judgement(answer.text)
        n_refused += bool(answer.refused)
    n_unparsed = labels.count(None) - n_refused
    return Judged(labels=tuple(labels), n_unparsed=n_unparsed, n_refused=n_refused)


def parse_judgement(answer: str) -> Judgement | None:
    """The answer that a model gives, or None where it gives none of the three.

    The first line counts if it begins with an answer, else the last line that does. A
    bare "yes" is the weaker of both; "no" with "exact" behind it may mean anything.
    """
    words = _MARKS.sub("", without_thoughts(answer))
    lines = [line for line in words.splitlines() if line.strip()]
    # The first line, then the last ones.
    for line in (*lines[:1], *reversed(lines)):
        if match := _ANSWER.search(line):
            return "no" if match["no"] else "exact" if match["exact"] else "near"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Shares of completions that a judge and humans call copies alike, exact or near.

    `kappa` is Cohen's; `always_no` the accuracy of a judge that never finds a copy.
    None for n = 0, where neither found any (`f1`), where both used one word only
    (`kappa`).
    """

    n: int
    accuracy: float | None = None
    f1: float | None = None
    kappa: float | None = None
    always_no: float | None = None


def agreement(labels: Labels, others: Labels) -> Agreement:
    """Compare two judges; `others` are to be found, such as humans' labels."""
    pairs = [pair for pair in zip(labels, others, strict=True) if None not in pair]
    both = [(is_copy(a), is_copy(b)) for a, b in pairs]
    n = len(both)
    if not n:
        return Agreement(n=0)
    n_same = sum(a == b for a, b in both)
    n_judged, n_true = sum(a for a, _ in both), sum(b for _, b in both)
    n_hits = sum(a and b for a, b in both)
    accuracy = n_same / n
    by_chance = (n_judged * n_true + (n - n_judged) * (n - n_true)) / n**2
    n_named = n_judged + n_true
    return Agreement(
        n=n,
        accuracy=accuracy,
        f1=2 * n_hits / n_named if n_named else None,
        kappa=(accuracy - by_chance) / (1 - by_chance) if by_chance < 1 else None,
        always_no=(n - n_true) / n,
    )


ByPerson = tuple[tuple[Judgement | None, ...], ...]
"""(people, N) labels; None where a person gave none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Each person's labels of guided completions, and their source for reports."""

    labels: ByPerson
    source: str

    @property
    def consensus(self) -> tuple[Judgement | None, ...]:
        """Labels on which they agree; see `consensus`."""
        return consensus(self.labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how far people agree, and how many completions drop out."""
        notes = []
        if len(self.labels) == 2:
            both = agreement(*self.labels)
            if both.accuracy is not None:
                kappa = ""
                if both.kappa is not None:
                    kappa = f" (Cohen's kappa {both.kappa:.2f})"
                notes.append(
                    f"two people agree on {both.accuracy:.1%} of {both.n} completions, "
                    f"copy or not{kappa}"
                )
        n_open = sum(map(_is_disputed, zip(*self.labels, strict=True)))
        if n_open:
            notes.append(
                f"{n_open} of {len(self.labels[0])} completions are left out of "
                "people's labels: one person calls them a copy, another does not"
            )
        return tuple(notes)


def consensus(people: ByPerson) -> tuple[Judgement | None, ...]:
    """Weakest label given to each completion; None if none was, or copy is disputed."""
    weakest_first: tuple[Judgement, ...] = ("no", "near", "exact")
    return tuple(
        None
        if _is_disputed(labels)
        else next((one for one in weakest_first if one in labels), None)
        for labels in zip(*people, strict=True)
    )


def _is_disputed(labels: tuple[Judgement | None, ...]) -> bool:
    return "no" in labels and any(map(is_copy, labels))
