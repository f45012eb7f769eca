"""`jaxcontam overlap`: which examples of a benchmark occur in a corpus of files."""

import dataclasses
import hashlib
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from jaxcontam import __version__
from jaxcontam.amounts import counted
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import CorpusFile, list_corpus
from jaxcontam.data.ngrams import SHORT
from jaxcontam.errors import InputError
from jaxcontam.models.hub import model_directory
from jaxcontam.overlap.counts import Counts, read_tasks, task_files
from jaxcontam.overlap.flags import Overlap
from jaxcontam.overlap.index import SHARED, Form, example_index, read_examples
from jaxcontam.overlap.index_search import RULES as INDEX_RULES
from jaxcontam.overlap.index_search import parse_index, search_index
from jaxcontam.overlap.nearest import StaticEmbeddings, with_nearest
from jaxcontam.overlap.occurrences import (
    RULES,
    Occurrence,
    OverlapSearchResult,
    SearchedBenchmark,
    SearchedCorpus,
    SearchedIndex,
    SearchedTasks,
    in_context,
    occurrences,
    totals,
)
from jaxcontam.overlap.search import (
    Reached,
    Wanted,
    load_state,
    save_state,
    search_files,
    without_text,
)
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table
from jaxcontam.reports.flags import flag_of, flags_of
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report_files import make_folder, replace_files
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text, printable

RESULT_NAME = "overlap.json"
FOUND_NAME, NOT_FOUND_NAME = "found.txt", "not_found.txt"

MEANING = (
    "This is word-for-word overlap with the given corpus; each example is looked up "
    "alone, regardless of its place in the file. An example that is not found may be "
    "in another corpus, or here as a paraphrase or a translation. One that is found "
    "proves nothing about a model unless it was trained on this corpus."
)
"""Meaning of the numbers, and its limits."""

_PRINTED_FAULTS, _PRINTED_FOUND = 3, 5


_SCHEMA = 3


def search(command: Overlap) -> int:
    """Search, write, print; 0, or 3 if parts of the corpus were unreadable."""
    benchmark, forms = read_examples(
        command.benchmark, text=command.text, limit=command.limit
    )
    asked = [benchmark.fingerprint, os.path.realpath(command.corpus)]
    digest = _digest([*asked, *flags_of(_asked_for(command))])
    out = command.out or Path("runs/overlap") / f"{benchmark.name}-{digest[:8]}"
    if (index := parse_index(str(command.corpus))) is not None:
        make_folder(out)
        rows, asked = search_index(index, forms, folder=out, budget=command.max_queries)
        result = _result(command, benchmark, INDEX_RULES, asked, rows)
        _write(result, out)
    elif paths := task_files(command.corpus):
        result = _of_tasks(command, benchmark, forms, paths, out)
    else:
        result = _searched(command, benchmark, forms, out)
    if command.json:
        print(json_text(dataclasses.asdict(result)))
    else:
        console = Terminal()
        print_overlap(result, out, console)
        console.say(*(f"{benchmark.name}: {words}" for words in benchmark.left_out))
    corpus = result.corpus
    return 3 if isinstance(corpus, SearchedCorpus) and corpus.n_unreadable else 0


def _of_tasks(
    command: Overlap,
    benchmark: Benchmark,
    forms: Sequence[Form],
    paths: Sequence[Path],
    out: Path,
) -> OverlapSearchResult:
    """The table of what the tasks of a pipeline counted."""
    for name in ("corpus_field", "embeddings"):
        if getattr(command, name) != getattr(Overlap, name):
            raise InputError(f"{flag_of(name)} goes with files, not with counts")
    index = example_index(forms)
    found = read_tasks(paths, index.fingerprint)
    if not index.fits(found):
        raise InputError(f"{command.corpus}: counts that contradict each other")
    make_folder(out)
    corpus = SearchedTasks(
        n_tasks=len(paths), n_documents=found.n_documents, n_words=found.n_words
    )
    result = _result(command, benchmark, RULES, corpus, occurrences(index, found))
    _write(result, out)
    return result


def _searched(
    command: Overlap, benchmark: Benchmark, forms: Sequence[Form], out: Path
) -> OverlapSearchResult:
    files, others = list_corpus(
        command.corpus, leave_out=out, missing_hint="CORPUS is given first"
    )
    make_folder(out)
    embeddings = command.embeddings and StaticEmbeddings.load(
        model_directory(command.embeddings)
    )
    key = _key(command, benchmark, files, embeddings and embeddings.fingerprint)
    found, reached = load_state(out, key)
    if (result := _finished(out, reached)) is not None:
        return result
    index = example_index(forms)
    # Its result is gone, or it is damaged.
    if reached.finished is not None or not index.fits(found):
        found, reached = Counts(), Reached()
    with progress_bar("searching the corpus", unit="bytes/s") as progress:
        found, reached = search_files(
            Wanted(index, embeddings or None),
            files,
            text_field=command.corpus_field,
            found=found,
            reached=reached,
            save=lambda found, reached: save_state(out, key, found, reached),
            progress=progress,
        )
    if not found.n_documents:
        raise without_text(str(command.corpus), reached)
    corpus = SearchedCorpus(
        n_files=len(files),
        n_bytes=sum(file.size for file in files),
        n_documents=found.n_documents,
        n_words=found.n_words,
        n_unreadable=reached.n_faults,
        unreadable=reached.faults,
        not_read=tuple(others),
    )
    rows = with_nearest(occurrences(index, found), index.forms, found.nearest)
    result = _result(command, benchmark, RULES, corpus, rows)
    reached = dataclasses.replace(reached, finished=_digest(_write(result, out)))
    save_state(out, key, Counts(), reached)
    return result


def _asked_for(command: Overlap) -> Overlap:
    """Without what no result depends on."""
    return dataclasses.replace(
        command, out=None, json=False, max_queries=Overlap.max_queries
    )


def _key(
    command: Overlap,
    benchmark: Benchmark,
    files: list[CorpusFile],
    embeddings: str | None,
) -> str:
    listed = [
        (os.path.realpath(file.path), file.name, file.size, file.modified)
        for file in files
    ]
    asked = dataclasses.asdict(_asked_for(command))
    asked = {name: str(value) for name, value in asked.items()}
    return _digest(
        [__version__, _SCHEMA, benchmark.fingerprint, asked, listed, embeddings]
    )


def _result(
    command: Overlap,
    benchmark: Benchmark,
    rules: dict[str, str],
    corpus: SearchedCorpus | SearchedIndex | SearchedTasks,
    rows: tuple[Occurrence, ...],
) -> OverlapSearchResult:
    flags = flags_of(_asked_for(command))
    return OverlapSearchResult(
        schema=_SCHEMA,
        jaxcontam=__version__,
        command=("overlap", str(command.corpus), str(command.benchmark), *flags),
        meaning=MEANING,
        rules=rules,
        benchmark=SearchedBenchmark(
            name=benchmark.name,
            fingerprint=benchmark.fingerprint,
            order_provenance=benchmark.order_provenance,
            n_examples=len(benchmark),
        ),
        corpus=corpus,
        totals=totals(rows, rules),
        examples=rows,
    )


def _write(result: OverlapSearchResult, out: Path) -> str:
    """The result, whose text this gives, and the two lists; a whole file stays."""
    ids = {True: "", False: ""}
    for row in result.examples:
        if row.n_words:
            ids[row.is_found] += f"{row.id}\n"
    # Unpaired surrogates of a corpus are escaped.
    text = json_text(dataclasses.asdict(result)) + "\n"
    files = {FOUND_NAME: ids[True], NOT_FOUND_NAME: ids[False], RESULT_NAME: text}
    new = {out / name: content.encode() for name, content in files.items()}
    replace_files({path: data for path, data in new.items() if not _holds(path, data)})
    return text


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _finished(out: Path, reached: Reached) -> OverlapSearchResult | None:
    if reached.finished is None:
        return None
    try:
        text = (out / RESULT_NAME).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if _digest(text) != reached.finished:
        return None
    result = read_result(OverlapSearchResult, json.loads(text), RESULT_NAME)
    # A list that somebody removed or changed.
    _write(result, out)
    return result


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def print_overlap(result: OverlapSearchResult, out: Path, console: Terminal) -> None:
    """Print a result and where it is."""
    counts, n = result.totals, result.benchmark.n_examples
    either = {"found": "any of these", "not_found": "none of these"}
    cells = [
        (name.replace("_", " "), str(counts[name]), f"{counts[name] / n:.1%}", meaning)
        for name, meaning in (result.rules | either).items()
    ]
    header = ("rule", "examples", "share", "how an example matches")
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
            "words and may occur by chance."
        )
    if counts["boilerplate"]:
        console.say(
            f"{counts['boilerplate']} match only boilerplate and do not count as "
            f"found: words that {SHARED} or more examples share, or that are "
            "everywhere in the corpus (choose what is looked up with --text)."
        )
    if n_without := counts["without_words"]:
        one, several = (f"no words and {verb} in no list." for verb in ("is", "are"))
        said = counted(n_without, f"example has {one}", f"examples have {several}")
        console.say(said)
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
        "nearest in meaning among those not found, to check by eye; the median cosine "
        f"over all examples is {middle:.2f}:"
    )
    ranked = sorted(near, key=lambda one: -one[1].cosine)
    for i, nearest in [one for one in ranked if one[0] in missed][:_PRINTED_FOUND]:
        console.say(
            f"  id {i} ({nearest.cosine:.2f}) {nearest.file}:{nearest.line}",
            f"    example: {in_context(nearest.example, None)}",
            f"    corpus:  {in_context(nearest.corpus, None)}",
        )


def _searched_words(corpus: SearchedCorpus | SearchedIndex | SearchedTasks) -> str:
    if isinstance(corpus, SearchedTasks):
        return (
            f"counts of {counted(corpus.n_tasks, 'task')}: "
            f"{counted(corpus.n_documents, 'document')}, "
            f"{counted(corpus.n_words, 'word')}"
        )
    if isinstance(corpus, SearchedIndex):
        return (
            f"queried {corpus.index} for {corpus.n_runs:,} runs of words; not queried: "
            f"{counted(corpus.n_unasked, 'example')} below {SHORT} words, "
            f"{counted(corpus.n_shared_runs, 'shared run')}"
        )
    return (
        f"searched {counted(corpus.n_bytes, 'byte')} in "
        f"{counted(corpus.n_files, 'file')}: "
        f"{counted(corpus.n_documents, 'document')}, {counted(corpus.n_words, 'word')}"
    )


def _print_unread(corpus: SearchedCorpus, console: Terminal) -> None:
    if others := corpus.not_read:
        kinds = sorted({Path(name).suffix or name for name in others})
        few = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        console.say(f"not read: {counted(len(others), 'file')} of other kinds ({few})")
    if corpus.n_unreadable:
        console.say(f"unreadable parts, not searched: {corpus.n_unreadable}")
        for fault in corpus.unreadable[:_PRINTED_FAULTS]:
            console.say(f"  {fault.file}:{fault.line}: {fault.reason}")
