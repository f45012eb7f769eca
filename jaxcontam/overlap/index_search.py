"""Counts of a benchmark's n-grams in an infini-gram index, asked of its server.

An index finds what is written in the same tokens, so that case and punctuation count.
Each example is asked for in runs of `LONG` words side by side: any stretch of
2 * LONG - 1 of its words holds one of them whole.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.data.ngrams import LONG, SHORT, words_of
from jaxcontam.errors import InputError
from jaxcontam.overlap.flags import PREFIX
from jaxcontam.overlap.index import SHARED, Form
from jaxcontam.overlap.occurrences import Occurrence, SearchedIndex, in_context
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.api.address import ApiModel, RefusedError, parse_api

if TYPE_CHECKING:
    from jaxcontam.scoring.api.client import ApiClient, Check

JOURNAL_NAME = "answers.jsonl"
RULE = "13-gram"
RULES = {RULE: "13 words in a row, as written; all words of a shorter example"}
"""The one rule, and how an example meets it."""

COMMON = 1000
"""Occurrences from which a run of words counts as boilerplate of the corpus."""

_URL = "https://api.infini-gram.io"
_MOST_CHARACTERS = 1000
# Tokens of a document that are shown around a hit.
_SHOWN = {"max_disp_len": 150}
# The server reads them as operators between two searches.
_OPERATORS = re.compile(r"\b(AND|OR)\b")


def parse_index(word: str) -> ApiModel | None:
    """Server and index of `infini-gram:[URL#]INDEX`; None for another corpus."""
    if not word.startswith(PREFIX):
        return None
    name = word.removeprefix(PREFIX)
    if not name or name.endswith("#"):
        raise InputError(
            f"{word}: not an index",
            hint="such as infini-gram:v4_olmo-2-0325-32b-instruct_llama",
        )
    # A path loses one of two slashes.
    url, _, name = name.rpartition("#")
    url = re.sub(r"^(https?):/+", r"\1://", url) or _URL
    return parse_api(f"api:{url}#{name}", flag="CORPUS")


def search_index(
    index: ApiModel,
    forms: Sequence[Form],
    *,
    folder: Path,
    budget: int,
) -> tuple[tuple[Occurrence, ...], SearchedIndex]:
    """Ask for the runs of words of each example, then for a document of each hit.

    Answers are kept in `folder`, so that none is asked for twice. `budget` is the most
    runs that this run may ask for, tries of a request not counted; more are refused
    before the first is sent. Returns a result an example, and what was asked.
    """
    # Whoever searches files needs none of it.
    from jaxcontam.data.journal import Journal
    from jaxcontam.scoring.api.client import ApiClient

    texts = {
        i: form.text for form in forms if form.kind != "line" for i in form.examples
    }
    runs = {i: _runs(text) for i, text in texts.items()}
    n_holding = Counter(run for found in runs.values() for run in dict.fromkeys(found))
    asked = [run for run, n in n_holding.items() if n < SHARED]
    bodies = [_body(index, "find", run) for run in asked]
    with ApiClient(
        index, api_key=None, journal=Journal(folder / JOURNAL_NAME), is_openai=False
    ) as client:
        missing = sum(not client.holds("/", body) for body in bodies)
        if missing > budget:
            raise InputError(
                f"{index.name}: {missing:,} requests, more than --max-queries "
                f"{budget:,}",
                hint="use fewer examples with --limit N",
            )
        found = dict(zip(asked, _answers(client, bodies, _count), strict=True))
        hits: dict[int, str] = {}
        for i in texts:
            # The rarest says most; where that is everywhere, all are.
            own = [run for run in runs[i] if run in found and found[run][0] > 0]
            if own:
                hits[i] = min(own, key=lambda run: found[run][0])
        bodies = [
            _body(index, "get_doc_by_rank", run, s=shard, rank=rank, **_SHOWN)
            for run in hits.values()
            for _, shard, rank in [found[run]]
        ]
        shown = dict(zip(hits, _answers(client, bodies, _text), strict=True))
    rows = [
        _row(i, text, run, found[run][0], n_holding[run], shown[i])
        if (run := hits.get(i)) is not None
        else _row(i, text)
        for i, text in sorted(texts.items())
    ]
    return tuple(rows), SearchedIndex(
        index=index.name,
        url=index.url,
        n_runs=len(asked),
        n_shared_runs=len(n_holding) - len(asked),
        n_unasked=sum(not found for found in runs.values()),
    )


def _runs(text: str) -> list[str]:
    """Runs of words to ask for, as they stand in the text; the last ends with it.

    None of a text below `SHORT` words, which stands anywhere by chance.
    """
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    if len(spans) < SHORT:
        return []
    size = min(LONG, len(spans))
    starts = [*range(0, len(spans) - size, size), len(spans) - size]
    runs = [text[spans[at][0] : spans[at + size - 1][1]] for at in starts]
    return [
        run
        for run in dict.fromkeys(runs)
        if len(run) <= _MOST_CHARACTERS and not _OPERATORS.search(run)
    ]


def _body(index: ApiModel, kind: str, run: str, **more: int) -> dict[str, Any]:
    return {"index": index.name, "query_type": kind, "query": run, **more}


def _answers(
    client: "ApiClient", bodies: Sequence[dict[str, Any]], check: "Check"
) -> list[Any]:
    with progress_bar("querying the index", unit="requests/s") as progress:
        answers = client.post_all("/", bodies, progress, check=check)
    for answer in answers:
        if isinstance(answer, RefusedError):
            raise answer
    return answers


def _count(body: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[int, int, int]:
    """Count of a run, and shard and rank of the first document that has it.

    Raises:
        ValueError: If the answer does not say so; the server is asked again.
    """
    try:
        count, shards = answer["cnt"], answer["segment_by_shard"]
        ranks = [range(start, end) for start, end in shards]
        if type(count) is int and count == sum(map(len, ranks)):
            first = (place for place in enumerate(ranks) if place[1])
            shard, held = next(first, (0, range(1)))
            return count, shard, held[0]
    except (LookupError, TypeError, OverflowError):
        pass
    raise ValueError(f"no count of {body['query'][:40]!r}")


def _text(body: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Text of a document around a run; errors as of `_count`."""
    try:
        return "".join(str(text) for text, *_ in answer["spans"])
    except (LookupError, TypeError, ValueError) as e:
        raise ValueError(f"no document with {body['query'][:40]!r}") from e


def _row(
    number: int,
    text: str,
    run: str | None = None,
    count: int | None = None,
    n_examples: int | None = None,
    shown: str | None = None,
) -> Occurrence:
    return Occurrence(
        id=number,
        rule=None if run is None else RULE,
        rules=() if run is None else (RULE,),
        form="text",
        n_words=len(words_of(text)),
        matched=run,
        matched_examples=n_examples,
        matched_documents=count,
        share_8grams=None,
        containment=None,
        file=None,
        line=None,
        boilerplate=count is not None and count >= COMMON,
        example=None if run is None else in_context(text, run),
        corpus=in_context(shown, run),
    )
