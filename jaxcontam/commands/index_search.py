"""Counts of a benchmark's n-grams in an infini-gram index, asked of its server.

An index finds what is written in the same tokens, so that case and punctuation count.
Each example is asked for in runs of `LONG` words side by side: any stretch of
2 * LONG - 1 of its words holds one of them whole.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.data.journal import Journal
from jaxcontam.data.ngrams import LONG, SHORT, words_of
from jaxcontam.data.occurrences import SHARED, Form, Occurrence, in_context
from jaxcontam.data.overlap_result import SearchedIndex
from jaxcontam.errors import InputError
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.api.address import ApiModel, parse_api
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.request import RefusedError

PREFIX = "infini-gram:"
JOURNAL_NAME = "answers.jsonl"
RULE = "13-gram"
RULES = {RULE: "13 words in a row, as written; all words of a shorter example"}
"""The one rule, and how an example meets it."""

COMMON = 1000
"""Occurrences from which a run of words counts as boilerplate of the corpus."""

_URL = "https://api.infini-gram.io"
_MOST_CHARACTERS = 1000
# Tokens of a document that are shown around a hit.
_SHOWN_TOKENS = 150
# The server reads them as operators between two searches.
_OPERATORS = re.compile(r"\b(AND|OR)\b")


def parse_index(word: str) -> ApiModel | None:
    """Server and index of `infini-gram:[URL#]INDEX`; None for another corpus.

    Raises:
        InputError: If there is no index, or no request could be sent to the URL.
    """
    if not word.startswith(PREFIX):
        return None
    name = word.removeprefix(PREFIX)
    if not name or name.endswith("#"):
        raise InputError(
            f"{word}: no index",
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

    Args:
        index: Server and index.
        forms: Their texts.
        folder: Where answers are kept, so that none is asked for twice.
        budget: Most requests that this run may send, tries of a request not counted.

    Returns:
        A result an example, and what was asked.

    Raises:
        InputError: If more requests are needed, before the first is sent; or if the
            server does not answer.
    """
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
                f"{index.name}: {missing:,} requests, which is more than --budget "
                f"{budget:,}",
                hint="--limit N takes fewer examples",
            )
        with progress_bar("asking the index", unit="requests/s") as progress:
            answers = client.post_all("/", bodies, progress, check=_check)
        for answer in answers:
            if isinstance(answer, RefusedError):
                raise answer
        places = dict(zip(asked, answers, strict=True))
        rows = []
        for i, text in sorted(texts.items()):
            hits = [run for run in runs[i] if run in places and places[run]["cnt"] > 0]
            # The rarest says most; where that is everywhere, all are.
            run = min(hits, key=lambda run: places[run]["cnt"], default=None)
            if run is None:
                rows.append(_row(i, text))
                continue
            shown = _document(client, index, run, places[run])
            rows.append(_row(i, text, run, places[run]["cnt"], n_holding[run], shown))
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


def _check(body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Refuse what holds no count and no place; the server is asked again."""
    count, places = answer.get("cnt"), answer.get("segment_by_shard")
    if type(count) is int and isinstance(places, list):
        n_ranks = sum(end - start for start, end in places)
        if count == n_ranks >= 0:
            return
    raise ValueError(f"no count of {body['query'][:40]!r}")


def _document(
    client: ApiClient, index: ApiModel, run: str, found: Mapping[str, Any]
) -> str:
    """Text of the first document that holds a run, around it."""
    shard, (rank, _) = next(
        (shard, ends)
        for shard, ends in enumerate(found["segment_by_shard"])
        if ends[1] > ends[0]
    )
    body = _body(
        index, "get_doc_by_rank", run, s=shard, rank=rank, max_disp_len=_SHOWN_TOKENS
    )
    answer = client.post("/", body)
    return "".join(str(text) for text, *_ in answer.get("spans", []))


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
