"""A chat model that calls completions exact copies, near-exact ones, or none."""

import hashlib
import re
from collections.abc import Sequence

from jaxcontam.progress import Progress
from jaxcontam.replication.instance import Completer, Completion, Instance, new_piece
from jaxcontam.replication.judges import Judged, Judgement
from jaxcontam.scoring.completer import without_thoughts

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


def judge_version() -> str:
    """Name of the prompt with a digest of its words."""
    return "llm-1@" + hashlib.sha256(_PROMPT.encode()).hexdigest()[:12]


def judge_prompt(reference: str, candidate: str) -> str:
    """The question about one pair, with one exact example and four near-exact ones."""
    texts = {"{reference}": reference, "{candidate}": candidate.strip()}
    # In one pass: a reference may hold "{candidate}".
    return re.sub(r"\{reference\}|\{candidate\}", lambda m: texts[m[0]], _PROMPT)


def judge_llm(
    completer: Completer,
    instances: Sequence[Instance],
    completions: Sequence[Completion],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judged:
    """Ask a chat model about each completion, at temperature 0.

    What a completion repeats of its prompt, and its thoughts, are left out. Empty
    completions are no copies, and nobody is asked about them. Answers that are none of
    the three and requests that were refused are None and counted.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, figure 2: the plan of its prompt, with
        examples of our own.
    """
    labels: list[Judgement | None] = ["no"] * len(instances)
    n_refused = n_unparsed = 0
    asked: list[int] = []
    prompts: list[str] = []
    for i, completion in enumerate(completions):
        if completion.refused:
            labels[i] = None
            n_refused += 1
        elif candidate := new_piece(instances[i], completion.text):
            asked.append(i)
            prompts.append(judge_prompt(instances[i].second_piece, candidate))
    answers = []
    if prompts:
        answers = completer.complete(
            prompts, max_tokens=_MOST_TOKENS, seed=seed, progress=progress
        )
    for i, (answer,) in zip(asked, answers, strict=True):
        labels[i] = None if answer.refused else parse_judgement(answer.text)
        n_refused += bool(answer.refused)
        n_unparsed += not answer.refused and labels[i] is None
    return Judged(labels=tuple(labels), n_unparsed=n_unparsed, n_refused=n_refused)


def parse_judgement(answer: str) -> Judgement | None:
    """The answer that a model gives, or None where it gives none of the three.

    The first line counts if it begins with an answer, else the last line that does. A
    bare "yes" is the weaker of both; "no" with "exact" behind it may mean anything.
    """
    words = _MARKS.sub("", without_thoughts(answer))
    lines = [line for line in words.splitlines() if line.strip()]
    found: list[Judgement | None] = [_line_judgement(line) for line in lines]
    if found and found[0] is not None:
        return found[0]
    return next((one for one in reversed(found) if one is not None), None)


def _line_judgement(line: str) -> Judgement | None:
    match = _ANSWER.search(line)
    if match is None:
        return None
    if match["no"]:
        return "no"
    return "exact" if match["exact"] else "near"
