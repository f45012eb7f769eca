"""What `jaxcontam overlap` prints: its result in words."""

import statistics
from pathlib import Path

from jaxcontam.data.ngrams import SHORT
from jaxcontam.data.occurrences import SHARED, in_context
from jaxcontam.data.overlap_result import (
    OverlapSearchResult,
    SearchedCorpus,
    SearchedIndex,
)
from jaxcontam.report.outcome import bare_table
from jaxcontam.terminal import Terminal, printable

RESULT_NAME = "overlap.json"
FOUND_NAME, NOT_FOUND_NAME = "found.txt", "not_found.txt"

MEANING = (
    "This is word-for-word overlap with the corpus you gave, each example looked up "
    "alone whatever its place in the file: what is not found may stand in another "
    "corpus, or here as a paraphrase or a translation, and what is found proves "
    "nothing of a model unless it was trained on this corpus."
)
"""What the numbers show and what they do not."""

_PRINTED_FAULTS, _PRINTED_FOUND = 3, 5


def print_overlap(result: OverlapSearchResult, out: Path, console: Terminal) -> None:
    """Print a result and where it is."""
    counts, n = result.totals, result.benchmark.n_examples
    either = {"found": "any of these", "not_found": "none of these"}
    cells = [
        (name.replace("_", " "), str(counts[name]), f"{counts[name] / n:.1%}", meaning)
        for name, meaning in (result.rules | either).items()
    ]
    header = ("rule", "examples", "share", "an example meets it by")
    console.say(f"{result.benchmark.name}: {n} examples")
    console.print(bare_table(header, cells, words=(0, 3), gap=2, fold=True))
    console.say(_searched_words(result.corpus))
    found = [row for row in result.examples if row.is_found]
    if found:
        console.say("found (ids count from 0):")
    for row in found[:_PRINTED_FOUND]:
        place = "" if row.file is None else f" {row.file}:{row.line}"
        console.say(
            f"  id {row.id} ({row.rule}){place}",
            f"    example: {row.example}",
            f"    corpus:  {row.corpus}",
        )
    _print_nearest(result, console)
    if counts["found_below_8_words"]:
        console.say(
            f"{counts['found_below_8_words']} of those found have fewer than {SHORT} "
            "words, which occur by chance."
        )
    if counts["boilerplate"]:
        console.say(
            f"{counts['boilerplate']} have nothing there but boilerplate, and do not "
            f"count as found: words that {SHARED} or more examples share, or that are "
            "everywhere in the corpus (--template chooses what is looked for)."
        )
    if n_without := counts["without_words"]:
        console.say(f"{n_without} examples have no words and are in no list.")
    if isinstance(result.corpus, SearchedCorpus):
        _print_unread(result.corpus, console)
    lists = f"ids also in {FOUND_NAME}, {NOT_FOUND_NAME}"
    console.say(f"\n{MEANING}", f"\nresult: {printable(out / RESULT_NAME)} ({lists})")


def _print_nearest(result: OverlapSearchResult, console: Terminal) -> None:
    near = [(row.id, n) for row in result.examples if (n := row.nearest)]
    if not near:
        return
    middle = statistics.median(nearest.cosine for _, nearest in near)
    missed = {row.id for row in result.examples if not row.is_found}
    console.say(
        "nearest in meaning of those not found, to be read; of all examples the "
        f"median cosine is {middle:.2f}:"
    )
    ranked = sorted(near, key=lambda one: -one[1].cosine)
    for i, nearest in [one for one in ranked if one[0] in missed][:_PRINTED_FOUND]:
        console.say(
            f"  id {i} ({nearest.cosine:.2f}) {nearest.file}:{nearest.line}",
            f"    example: {in_context(nearest.example, None)}",
            f"    corpus:  {in_context(nearest.corpus, None)}",
        )


def _searched_words(corpus: SearchedCorpus | SearchedIndex) -> str:
    if isinstance(corpus, SearchedIndex):
        return (
            f"asked {corpus.index} for {corpus.n_runs:,} runs of words; not asked for: "
            f"{corpus.n_unasked} examples below {SHORT} words, "
            f"{corpus.n_shared_runs} shared runs"
        )
    return (
        f"searched {corpus.n_bytes:,} bytes in {corpus.n_files} files: "
        f"{corpus.n_documents:,} documents, {corpus.n_words:,} words"
    )


def _print_unread(corpus: SearchedCorpus, console: Terminal) -> None:
    if others := corpus.not_read:
        kinds = sorted({Path(name).suffix or name for name in others})
        few = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        console.say(f"not read: {len(others)} files of other kinds ({few})")
    if corpus.n_unreadable:
        console.say(f"unreadable parts, not searched: {corpus.n_unreadable}")
        for fault in corpus.unreadable[:_PRINTED_FAULTS]:
            console.say(f"  {fault.file}:{fault.line}: {fault.reason}")
