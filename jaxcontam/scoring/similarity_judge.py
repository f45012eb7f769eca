"""Similarity of two continuations of a text, from 1 to 5, graded by a chat model."""

import dataclasses
import re
from collections.abc import Sequence

from jaxcontam.data.journal import Journal
from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.completer import without_thoughts

_PROMPT = """\
Two continuations of the same beginning follow; A is the original. Say how close B
comes to A in what happens and in wording, as one whole number:
1 - nothing in common beyond the beginning
2 - the same subject, other events
3 - some of the same events or details
4 - mostly the same events and details
5 - the same continuation, word for word or nearly so
Begin your answer with the number alone on a line; then give your reason in one
sentence.

Beginning:
{beginning}

A:
{original}

B:
{sample}
"""
_MOST_TOKENS = 200
# Marks of emphasis and brackets around a number, and "/5" behind it.
_BEFORE, _AFTER = r"""[\s*_`"'(\[]*""", r"""(?:\s*/\s*5)?[*_`"')\]]*"""
_ALONE = re.compile(rf"(?m)^{_BEFORE}([1-5]){_AFTER}[.\s]*$")
# "4 - mostly the same" as the beginning: no "3-4", and no "1." of a list.
_FIRST = re.compile(rf"\A{_BEFORE}([1-5]){_AFTER}\s*[-\u2013\u2014:]\s*(?=[^\W\d])")
# "Score: 4", "Score (1-5): 4", "a rating of 4": no "a score of 1 to 5".
_NAMED = re.compile(
    r"(?i)\b(?:give (?:it|this) an?\b|(?:score|rating|grade)\b"
    r"(?:[^\n:=.]{0,40}?[:=]|\s+(?:is|of)\b)?)"
    rf"{_BEFORE}([1-5])(?!\w|[.,]\d|\s*(?:[-\u2013\u2014]|to\b|or\b)\s*\d)"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSamples:
    """Grades of the judge.

    Attributes:
        numbers: One per triple; None where there is no answer, or no grade in it.
        refusals: Message of the server for each triple that it refused.
        note: Warning that the judge changed during the run; "" if it did not.
    """

    numbers: tuple[int | None, ...]
    refusals: tuple[str, ...]
    note: str = ""


def judge_similarities(
    judge: ApiModel,
    triples: Sequence[tuple[str, str, str]],
    journal: Journal,
    *,
    api_key: str | None,
    retry_refused: bool = False,
    progress: Progress | None = None,
) -> JudgedSamples:
    """Grade each triple from 1 (nothing in common) to 5 (the same).

    An empty sample gets a 1 without a request. Answers, with a grade or without, and
    refusals of the server are stored in the journal as they come in.

    Raises:
        InputError: If the server refuses everything, or keeps failing.

    Source:
        The scale of Shi et al., arXiv:2310.16789, section 7.2.1; the words are ours.
    """
    from jaxcontam.scoring.api.chat import ChatCompleter
    from jaxcontam.scoring.api.client import ApiClient, snapshot_warning

    prompts = [
        _PROMPT.format(beginning=beginning, original=original, sample=sample)
        for beginning, original, sample in triples
        if sample.strip()
    ]
    n_empty = len(triples) - len(prompts)

    def tell(n_done: int, _: int) -> None:
        if progress is not None:
            progress(n_empty + n_done, len(triples))

    with ApiClient(
        judge, api_key=api_key, journal=journal, retry_refused=retry_refused
    ) as client:
        answers = ChatCompleter(client).complete(
            prompts, max_tokens=_MOST_TOKENS, temperature=0.0, progress=tell
        )
        changed = snapshot_warning(client)
    found = iter(answer for (answer,) in answers)
    numbers: list[int | None] = []
    refusals: list[str] = []
    for _, _, sample in triples:
        if not sample.strip():
            numbers.append(1)
        elif (answer := next(found)).refused:
            numbers.append(None)
            refusals.append(answer.refused)
        else:
            numbers.append(parse_number(answer.text))
    return JudgedSamples(
        numbers=tuple(numbers),
        refusals=tuple(refusals),
        note="" if changed is None else f"of the judge: {changed}",
    )


def parse_number(answer: str) -> int | None:
    """Grade from 1 to 5 in an answer, or None.

    A number alone on a line or at the beginning, as the prompt asks; else the last
    number that is called a score, a rating or a grade.
    """
    words = without_thoughts(answer)
    if match := _ALONE.search(words) or _FIRST.search(words):
        return int(match.group(1))
    named = _NAMED.findall(words)
    return int(named[-1]) if named else None
