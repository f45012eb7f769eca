"""`jaxcontam overlap`: which examples of a benchmark occur in a corpus of files."""

import dataclasses
import hashlib
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import numpy as np
from tyro.conf import Positional

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.corpus import CorpusFile, Fault, Segment, list_corpus, read_segments
from jaxcontam.data.ngrams import SHORT, overlap_index
from jaxcontam.data.records import Place
from jaxcontam.errors import InputError
from jaxcontam.models.hub import model_directory
from jaxcontam.overlap.corpus_search import OverlapSearch
from jaxcontam.overlap.index_search import PREFIX, parse_index, search_index
from jaxcontam.overlap.index_search import RULES as INDEX_RULES
from jaxcontam.overlap.nearest import NearestSearch, StaticEmbeddings, with_nearest
from jaxcontam.overlap.occurrences import (
    RULES,
    SHARED,
    Form,
    Occurrence,
    forms_of,
    in_context,
    occurrences,
    with_contexts,
)
from jaxcontam.overlap.result import (
    NamedFault,
    OverlapSearchResult,
    SearchedBenchmark,
    SearchedCorpus,
    SearchedIndex,
)
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table
from jaxcontam.reports.archive import DAMAGED_ARRAY
from jaxcontam.reports.flags import check_positive, flag_of, flags_of
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report_files import make_folder, replace_bytes, replace_files
from jaxcontam.terminal import Terminal, json_text, printable

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


STATE_NAME = "search.npz"


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """Where a search stands.

    Attributes:
        place: Where in that file; None where it begins.
        finished: Digest of the result, once there is one.
    """

    file: int = 0
    place: Place | None = None
    n_faults: int = 0
    faults: tuple[NamedFault, ...] = ()
    finished: str | None = None


def save_state(
    out: Path,
    key: str,
    reached: Reached,
    search: OverlapSearch | None,
    nearest: NearestSearch | None = None,
) -> None:
    """Write the state, whole or not at all; no search once the result is written."""
    about = {"key": key, "reached": dataclasses.asdict(reached)}
    arrays: dict[str, np.ndarray] = {}
    if search is not None:
        about["search"] = {
            "n_documents": search.n_documents,
            "n_words": search.n_words,
            "carried": search.carried(),
        }
        if nearest is not None:
            about["stretches"] = nearest.stretches
        arrays = _arrays(search, nearest)
    buffer = io.BytesIO()
    # No text in another encoding: unpaired surrogate of a damaged record is escaped.
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    replace_bytes(out / STATE_NAME, buffer.getvalue())


def load_state(
    out: Path, key: str, search: OverlapSearch, nearest: NearestSearch | None = None
) -> Reached:
    """Take up the search of the same key in `search`; a new one starts at the top.

    A state that is damaged or belongs to another search counts as none.
    """
    try:
        with open(out / STATE_NAME, "rb") as file, np.load(file) as saved:
            about = json.loads(saved["about"].tobytes())
            if about["key"] != key:
                return Reached()
            reached = read_result(Reached, about["reached"], STATE_NAME)
            if reached.finished is not None:
                return reached
            arrays = {name: saved[name] for name in _arrays(search, nearest)}
            stretches = about["stretches"] if nearest is not None else []
    except (OSError, KeyError, RecursionError, InputError, *DAMAGED_ARRAY):
        return Reached()
    for name, array in _arrays(search, nearest).items():
        array[...] = arrays[name]
    if nearest is not None:
        nearest.stretches[:] = stretches
    search.n_documents = about["search"]["n_documents"]
    search.n_words = about["search"]["n_words"]
    search.resume(about["search"]["carried"])
    return reached


def _arrays(
    search: OverlapSearch, nearest: NearestSearch | None
) -> dict[str, np.ndarray]:
    marks = {f"ngrams_{n}": marks for n, marks in search.ngrams.items()}
    kept = marks | {"texts": search.texts}
    if nearest is not None:
        kept |= {"nearest": nearest.marks}
    return {
        f"{name}_{field.name}": getattr(one, field.name)
        for name, one in kept.items()
        for field in dataclasses.fields(one)
    }


_SCHEMA = 3
_BATCH_CHARACTERS = 1 << 20
_SAVE_SECONDS = 10.0
_NAMED_FAULTS = 20
# So many records without one text mean that a flag is wrong, not the records.
_HOPELESS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Look for the examples of a benchmark in a corpus, or in an infini-gram index.

    Examples:
        # which examples stand in the corpus
        jaxcontam overlap corpus/ benchmark.jsonl
        # which stand in the training data of OLMo 2, by its public index
        jaxcontam overlap infini-gram:v4_olmo-2-0325-32b-instruct_llama b.jsonl
    """

    corpus: Positional[Path]
    """File or folder: .jsonl, .json, .csv, .tsv, .txt, .warc, .wet, each also as .gz
    or .zst, .parquet; or infini-gram:[URL#]INDEX."""
    benchmark: Positional[Path]
    """File of examples: .jsonl, .json, .csv, .tsv or .txt."""
    text_field: str = "text"
    """Field of the corpus's records that is their text."""
    template: str | None = None
    """Text of an example, with fields in braces (default: line, and its strings)."""
    benchmark_field: str | None = None
    """Or the one field of an example that is its text."""
    limit: int | None = None
    """Take the first N examples."""
    embeddings: str | None = None
    """Also name the stretch of the corpus that is nearest to each example in meaning,
    by static embeddings: a folder, or a hub name such as minishlab/potion-base-8M."""
    budget: int = 10_000
    """Runs of words that an index is asked for at most; kept answers take none."""
    out: Path | None = None
    """Folder for overlap.json (default: runs/overlap/BENCHMARK-DIGEST)."""
    json: bool = False
    """Print the result on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "limit", "budget")
        if self.template is not None and self.benchmark_field is not None:
            raise InputError("--template and --benchmark-field exclude each other")
        is_index = str(self.corpus).startswith(PREFIX)
        others = ("text_field", "embeddings") if is_index else ("budget",)
        for other in others:
            if getattr(self, other) != getattr(Overlap, other):
                kind = "files" if is_index else "an index"
                raise InputError(f"{flag_of(other)} goes with {kind}")

    def run(self) -> int:
        """Search, write, print; 0, or 3 if parts of the corpus were unreadable."""
        benchmark = load_benchmark(
            self.benchmark,
            template=self.template,
            text_field=self.benchmark_field,
            limit=self.limit,
            # An id is the number of its record in the file.
            null_text="",
        )
        asked = [benchmark.fingerprint, os.path.realpath(self.corpus)]
        digest = _digest([*asked, *flags_of(self._asked_for())])
        out = self.out or Path("runs/overlap") / f"{benchmark.name}-{digest[:8]}"
        index = parse_index(str(self.corpus))
        if index is None:
            result = self._searched(benchmark, out)
        else:
            make_folder(out)
            rows, asked = search_index(
                index, self._forms(benchmark), folder=out, budget=self.budget
            )
            result = self._result(benchmark, INDEX_RULES, asked, rows)
            _write(result, out)
        if self.json:
            print(json_text(dataclasses.asdict(result)))
        else:
            console = Terminal()
            print_overlap(result, out, console)
            console.say(*(f"{benchmark.name}: {words}" for words in benchmark.left_out))
        corpus = result.corpus
        return 3 if isinstance(corpus, SearchedCorpus) and corpus.n_unreadable else 0

    def _searched(self, benchmark: Benchmark, out: Path) -> OverlapSearchResult:
        files, others = list_corpus(
            self.corpus, leave_out=out, missing_hint="CORPUS is given first"
        )
        make_folder(out)
        forms = self._forms(benchmark)
        texts = [form.text for form in forms]
        search, nearest = OverlapSearch(overlap_index(texts)), None
        if self.embeddings is not None:
            nearest = NearestSearch(
                StaticEmbeddings.load(model_directory(self.embeddings)), texts
            )
        key = self._key(benchmark, files, nearest)
        reached = load_state(out, key, search, nearest)
        if (result := _finished(out, reached)) is not None:
            return result
        if reached.finished is not None:  # but its result is gone
            reached = Reached()
        with progress_bar("searching the corpus", unit="bytes/s") as progress:
            reached = search_files(
                search,
                nearest,
                files,
                text_field=self.text_field,
                reached=reached,
                save=lambda now: save_state(out, key, now, search, nearest),
                progress=progress,
                batch_characters=_BATCH_CHARACTERS,
            )
        if not search.n_documents:
            raise _without_text(str(self.corpus), reached)
        names = [file.name for file in files]
        rows = occurrences(forms, search, files=names)
        if nearest is not None:
            rows = with_nearest(rows, forms, nearest, names)
        rows = with_contexts(rows, files, text_field=self.text_field)
        corpus = SearchedCorpus(
            n_files=len(files),
            n_bytes=sum(file.size for file in files),
            n_documents=search.n_documents,
            n_words=search.n_words,
            n_unreadable=reached.n_faults,
            unreadable=reached.faults,
            not_read=tuple(others),
        )
        result = self._result(benchmark, RULES, corpus, rows)
        finished = _digest(_write(result, out))
        save_state(out, key, dataclasses.replace(reached, finished=finished), None)
        return result

    def _forms(self, benchmark: Benchmark) -> tuple[Form, ...]:
        is_chosen = self.template is not None or self.benchmark_field is not None
        return forms_of(benchmark, is_chosen=is_chosen)

    def _asked_for(self) -> Self:
        """Without what no result depends on."""
        return dataclasses.replace(self, out=None, json=False, budget=Overlap.budget)

    def _key(
        self,
        benchmark: Benchmark,
        files: list[CorpusFile],
        nearest: NearestSearch | None,
    ) -> str:
        from jaxcontam import __version__

        listed = [
            (os.path.realpath(file.path), file.name, file.size, file.modified)
            for file in files
        ]
        asked = dataclasses.asdict(self._asked_for())
        asked = {name: str(value) for name, value in asked.items()}
        compared = nearest and nearest.embeddings.fingerprint
        return _digest(
            [__version__, _SCHEMA, benchmark.fingerprint, asked, listed, compared]
        )

    def _result(
        self,
        benchmark: Benchmark,
        rules: dict[str, str],
        corpus: SearchedCorpus | SearchedIndex,
        rows: tuple[Occurrence, ...],
    ) -> OverlapSearchResult:
        from jaxcontam import __version__

        flags = flags_of(self._asked_for())
        return OverlapSearchResult(
            schema=_SCHEMA,
            jaxcontam=__version__,
            command=("overlap", str(self.corpus), str(self.benchmark), *flags),
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


def search_files(
    search: OverlapSearch,
    nearest: NearestSearch | None,
    files: list[CorpusFile],
    *,
    text_field: str,
    reached: Reached,
    save: Callable[[Reached], None],
    progress: Callable[[int, int], None],
    batch_characters: int,
) -> Reached:
    """Read a corpus from where a search stands to its end.

    `save` is called every so often with a place to go on from, `progress` with bytes
    done and in all. `batch_characters` is text searched at a time; never less than four
    times the longest text that is looked for, since a batch repeats twice as much.
    """
    done = sum(file.size for file in files[: reached.file])
    in_all = sum(file.size for file in files)
    longest = max(map(len, search.index.texts), default=0)
    batch_characters = max(batch_characters, 4 * longest)
    batch: list[tuple[int, Segment]] = []
    n_characters, saved = 0, time.monotonic()
    for number in range(reached.file, len(files)):
        file = files[number]
        start = reached.place if number == reached.file else None
        found = read_segments(file.path, text_field=text_field, start=start)
        for item in found:
            if isinstance(item, Fault):
                reached = _with_fault(reached, file.name, item)
                if reached.n_faults >= _HOPELESS and not (search.n_documents or batch):
                    raise _without_text(file.name, reached)
            else:
                batch.append((number, item))
                n_characters += len(item.text)
            # Many blank or damaged records fill no batch but take time as well.
            if n_characters + 64 * len(batch) < batch_characters and isinstance(
                item, Segment
            ):
                continue
            _add(batch, search, nearest)
            batch, n_characters = [], 0
            place = item.after
            if isinstance(item, Fault) and place is None:
                reached = dataclasses.replace(reached, file=number + 1, place=None)
                continue
            if place is None:
                continue
            progress(done + place.stored, in_all)
            reached = dataclasses.replace(reached, file=number, place=place)
            if time.monotonic() - saved >= _SAVE_SECONDS:
                save(reached)
                saved = time.monotonic()
        done += file.size
    _add(batch, search, nearest)
    progress(in_all, in_all)
    return dataclasses.replace(reached, file=len(files), place=None)


def _add(
    batch: list[tuple[int, Segment]],
    search: OverlapSearch,
    nearest: NearestSearch | None,
) -> None:
    search.add(batch)
    if nearest is not None:
        for file, segment in batch:
            nearest.add(file, segment)


def totals(rows: tuple[Occurrence, ...], rules: Iterable[str]) -> dict[str, int]:
    """Examples that meet each rule, that meet any, and that deserve a second look."""
    found = [row for row in rows if row.is_found]
    return {
        **{rule: sum(rule in row.rules for row in found) for rule in rules},
        "found": len(found),
        "not_found": sum(not row.is_found and row.n_words > 0 for row in rows),
        "without_words": sum(row.n_words == 0 for row in rows),
        "found_below_8_words": sum(row.n_words < SHORT for row in found),
        "boilerplate": sum(row.boilerplate for row in rows),
    }


def _with_fault(reached: Reached, file: str, fault: Fault) -> Reached:
    named = reached.faults
    if len(named) < _NAMED_FAULTS:
        named = (*named, NamedFault(file, fault.line, fault.reason))
    return dataclasses.replace(reached, n_faults=reached.n_faults + 1, faults=named)


def _without_text(name: str, reached: Reached) -> InputError:
    if not reached.faults:
        return InputError(f"{name}: no text", hint="nothing to search in this corpus")
    first = reached.faults[0]
    return InputError(
        f"{first.file}:{first.line}: {first.reason}; no text in "
        f"{reached.n_faults} records",
        hint="--text-field names the field of the corpus that is its text",
    )


def _write(result: OverlapSearchResult, out: Path) -> str:
    """The result, whose text this gives, and the two lists."""
    ids = {True: "", False: ""}
    for row in result.examples:
        if row.n_words:
            ids[row.is_found] += f"{row.id}\n"
    # Unpaired surrogates of a corpus are escaped.
    text = json_text(dataclasses.asdict(result)) + "\n"
    files = {FOUND_NAME: ids[True], NOT_FOUND_NAME: ids[False], RESULT_NAME: text}
    replace_files({out / name: content.encode() for name, content in files.items()})
    return text


def _finished(out: Path, reached: Reached) -> OverlapSearchResult | None:
    if reached.finished is None:
        return None
    try:
        text = (out / RESULT_NAME).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if _digest(text) != reached.finished:
        return None
    return read_result(OverlapSearchResult, json.loads(text), RESULT_NAME)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
