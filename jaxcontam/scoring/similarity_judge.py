"""A chat model that says how alike two continuations of a text are, from 1 to 5."""

import re
from collections.abc import Sequence

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.scoring.chat_api import ApiModel, complete
from jaxcontam.scoring.stored import Progress

PROMPT_VERSION = 1
"""Changes with the words of the prompt."""

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
# A number that stands for itself: no 4 of "4.5", "14" or "4th".
_NUMBER = re.compile(r"(?<![\w.,])([1-5])(?![\w]|[.,]\d)")


def judge_similarities(
    judge: ApiModel,
    triples: Sequence[tuple[str, str, str]],
    journal: Journal,
    *,
    api_key: str | None,
    progress: Progress | None = None,
) -> list[int | None]:
    """Ask for a number from 1 (nothing in common) to 5 (the same) of each triple.

    An empty sample gets a 1 without being asked for. Each answer is kept as it comes
    in, whether or not it holds a number.

    Args:
        judge: The chat model.
        triples: (beginning, original continuation, sample).
        journal: Where answers are kept.
        api_key: See `chat_api`.
        progress: Told of answers and of all.

    Returns:
        A number, or None where the answer holds none.

    Raises:
        InputError: If the server refuses or keeps failing.

    Source:
        The scale of Shi et al., arXiv:2310.16789, section 7.2.1; the words are ours.
    """
    found: list[int | None] = []
    for done, (beginning, original, sample) in enumerate(triples, 1):
        if sample.strip():
            words = _PROMPT.format(
                beginning=beginning, original=original, sample=sample
            )
            key = journal_key("judge", PROMPT_VERSION, judge.url, judge.name, words)
            if key not in journal:
                answer = complete(
                    judge.url,
                    judge.name,
                    [{"role": "user", "content": words}],
                    api_key=api_key,
                    temperature=0.0,
                    max_tokens=_MOST_TOKENS,
                )
                journal.add(key, answer)
            found.append(parse_number(journal[key]))
        else:
            found.append(1)
        if progress is not None:
            progress(done, len(triples))
    return found


def parse_number(answer: str) -> int | None:
    """The first whole number from 1 to 5 of an answer, or None."""
    match = _NUMBER.search(answer)
    return None if match is None else int(match.group(1))
