"""`jaxcontam overlap`: which examples of a benchmark occur in a corpus of files."""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.commands.flags import check_positive, flags_of
from jaxcontam.commands.search_state import Reached, load_state, save_state
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.corpus import CorpusFile, Fault, Segment, list_corpus, read_segments
from jaxcontam.data.ngrams import SHORT, overlap_index
from jaxcontam.data.occurrences import (
    RULES,
    Form,
    NamedFault,
    Occurrence,
    OverlapSearchResult,
    SearchedBenchmark,
    SearchedCorpus,
    forms_of,
    occurrences,
)
from jaxcontam.data.overlap import OverlapSearch
from jaxcontam.errors import InputError
from jaxcontam.progress import progress_bar
from jaxcontam.report.outcome import bare_table
from jaxcontam.report.report_files import make_folder, replace_files
from jaxcontam.results.read import read_result
from jaxcontam.terminal import Terminal, json_text

RESULT_NAME = "overlap.json"
FOUND_NAME, NOT_FOUND_NAME = "found.txt", "not_found.txt"

MEANING = (
    "This is word-for-word overlap with the corpus you gave, each example looked up "
    "alone whatever its place in the file: what is not found may stand in another "
    "corpus, or here as a paraphrase or a translation, and what is found proves "
    "nothing of a model unless it was trained on this corpus."
)
"""What the numbers show and what they do not."""

_SCHEMA = 1
_BATCH_CHARACTERS = 1 << 20
_SAVE_SECONDS = 10.0
_NAMED_FAULTS = 20
# So many records without one text mean that a flag is wrong, not the records.
_HOPELESS = 1000
_PRINTED_FAULTS, _PRINTED_FOUND = 3, 5
# Words shared by this many examples may be the frame around them.
_SHARED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Look for the examples of a benchmark in a corpus that you have.

    Examples:
        # which examples stand in the corpus
        jaxcontam overlap corpus/ benchmark.jsonl
    """

    corpus: Positional[Path]
    """File or folder: .jsonl, .json, .csv, .tsv or .txt, each also as .gz."""
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
    out: Path | None = None
    """Folder for overlap.json (default: runs/overlap/BENCHMARK-DIGEST)."""
    json: bool = False
    """Print the result on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "limit")
        if self.template is not None and self.benchmark_field is not None:
            raise InputError("--template and --benchmark-field exclude each other")

    def run(self) -> int:
        """Search, write, print; 0, or 3 if parts of the corpus were unreadable."""
        benchmark = load_benchmark(
            self.benchmark,
            template=self.template,
            text_field=self.benchmark_field,
            limit=self.limit,
        )
        out = self.out or self._default_out(benchmark)
        result = self._searched(benchmark, out)
        if self.json:
            print(json_text(dataclasses.asdict(result)))
        else:
            _print(result, out, Terminal())
        return 3 if result.corpus.n_unreadable else 0

    def _searched(self, benchmark: Benchmark, out: Path) -> OverlapSearchResult:
        """Search and write, from where the same command stopped."""
        files, others = list_corpus(
            self.corpus, leave_out=out, missing_hint="CORPUS is given first"
        )
        make_folder(out)
        is_chosen = self.template is not None or self.benchmark_field is not None
        forms = forms_of(benchmark, is_chosen=is_chosen)
        search = OverlapSearch(overlap_index([form.text for form in forms]))
        key = self._key(benchmark, files)
        reached = load_state(out, key, search)
        if (result := _finished(out, reached)) is not None:
            return result
        if reached.finished is not None:  # but its result is gone
            reached = Reached()
        with progress_bar("searching the corpus", unit="bytes/s") as progress:
            reached = search_files(
                search,
                files,
                text_field=self.text_field,
                reached=reached,
                save=lambda now: save_state(out, key, now, search),
                progress=progress,
                batch_characters=_BATCH_CHARACTERS,
            )
        if not search.n_documents:
            raise _without_text(str(self.corpus), reached)
        result = self._result(benchmark, forms, search, files, others, reached)
        _write(result, out, key, reached)
        return result

    def _default_out(self, benchmark: Benchmark) -> Path:
        asked = [benchmark.fingerprint, os.path.realpath(self.corpus), *flags_of(self)]
        return Path("runs/overlap") / f"{benchmark.name}-{_digest(asked)[:8]}"

    def _key(self, benchmark: Benchmark, files: list[CorpusFile]) -> str:
        """Digest of everything that the result depends on."""
        from jaxcontam import __version__

        listed = [
            (os.path.realpath(file.path), file.name, file.size, file.modified)
            for file in files
        ]
        # What is printed and where it is written are no part of it.
        asked = dataclasses.asdict(dataclasses.replace(self, out=None, json=False))
        asked = {name: str(value) for name, value in asked.items()}
        return _digest([__version__, _SCHEMA, benchmark.fingerprint, asked, listed])

    def _result(
        self,
        benchmark: Benchmark,
        forms: tuple[Form, ...],
        search: OverlapSearch,
        files: list[CorpusFile],
        others: list[str],
        reached: Reached,
    ) -> OverlapSearchResult:
        from jaxcontam import __version__

        rows = occurrences(forms, search, files=[file.name for file in files])
        flags = flags_of(dataclasses.replace(self, out=None))
        return OverlapSearchResult(
            schema=_SCHEMA,
            jaxcontam=__version__,
            command=("overlap", str(self.corpus), str(self.benchmark), *flags),
            meaning=MEANING,
            rules=RULES,
            benchmark=SearchedBenchmark(
                name=benchmark.name,
                fingerprint=benchmark.fingerprint,
                order_provenance=benchmark.order_provenance,
                n_examples=len(benchmark),
            ),
            corpus=SearchedCorpus(
                n_files=len(files),
                n_bytes=sum(file.size for file in files),
                n_documents=search.n_documents,
                n_words=search.n_words,
                n_unreadable=reached.n_faults,
                unreadable=reached.faults,
                not_read=tuple(others),
            ),
            totals=totals(rows),
            examples=rows,
        )


def search_files(
    search: OverlapSearch,
    files: list[CorpusFile],
    *,
    text_field: str,
    reached: Reached,
    save: Callable[[Reached], None],
    progress: Callable[[int, int], None],
    batch_characters: int,
) -> Reached:
    """Read a corpus from where a search stands to its end.

    Args:
        search: Takes the text.
        files: The corpus.
        text_field: Field of a record that is its text.
        reached: Where to go on.
        save: Called every so often with a place to go on from.
        progress: Called with the bytes done and the bytes in all.
        batch_characters: Text searched at a time; never less than four times the
            longest text that is looked for, since a batch repeats twice as much.
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
            search.add(batch)
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
    search.add(batch)
    progress(in_all, in_all)
    return dataclasses.replace(reached, file=len(files), place=None)


def totals(rows: tuple[Occurrence, ...]) -> dict[str, int]:
    """Examples that meet each rule, that meet any, and that deserve a second look."""
    found = [row for row in rows if row.rule is not None]
    in_words_alone = [row for row in found if row.rule in ("13-gram", "8-grams")]
    return {
        **{rule: sum(rule in row.rules for row in rows) for rule in RULES},
        "found": len(found),
        "not_found": sum(row.rule is None and row.n_words > 0 for row in rows),
        "without_words": sum(row.n_words == 0 for row in rows),
        "found_below_8_words": sum(row.n_words < SHORT for row in found),
        "found_by_shared_words": sum(
            (row.matched_examples or 0) >= _SHARED for row in in_words_alone
        ),
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


def _write(result: OverlapSearchResult, out: Path, key: str, reached: Reached) -> None:
    """The result, the two lists, and a state that says that there is nothing to do."""
    ids = {True: "", False: ""}
    for row in result.examples:
        if row.rule or row.n_words:
            ids[bool(row.rule)] += f"{row.id}\n"
    fields = dataclasses.asdict(result)
    text = json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {FOUND_NAME: ids[True], NOT_FOUND_NAME: ids[False], RESULT_NAME: text}
    replace_files({out / name: content.encode() for name, content in files.items()})
    finished = dataclasses.replace(reached, finished=_digest(text))
    save_state(out, key, finished, None)


def _finished(out: Path, reached: Reached) -> OverlapSearchResult | None:
    """The result of the same search, if it finished and still exists."""
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


def _print(result: OverlapSearchResult, out: Path, console: Terminal) -> None:
    corpus, counts, n = result.corpus, result.totals, result.benchmark.n_examples
    either = {"found": "any of these", "not_found": "none of these"}
    cells = [
        (name.replace("_", " "), str(counts[name]), f"{counts[name] / n:.1%}", meaning)
        for name, meaning in (RULES | either).items()
    ]
    header = ("rule", "examples", "share", "an example meets it by")
    console.say(f"{result.benchmark.name}: {n} examples")
    console.print(bare_table(header, cells, words=(0, 3), gap=2, fold=True))
    console.say(
        f"searched {corpus.n_bytes:,} bytes in {corpus.n_files} files: "
        f"{corpus.n_documents:,} documents, {corpus.n_words:,} words"
    )
    found = [row for row in result.examples if row.rule]
    if found:
        console.say("found (ids count from 0):")
    for row in found[:_PRINTED_FOUND]:
        words = f": {row.matched}" if row.matched else ""
        console.say(f"  id {row.id} ({row.rule}) {row.file}:{row.line}{words}")
    if counts["found_below_8_words"]:
        console.say(
            f"{counts['found_below_8_words']} of those found have fewer than {SHORT} "
            "words, which occur by chance."
        )
    if counts["found_by_shared_words"]:
        console.say(
            f"{counts['found_by_shared_words']} were found by words alone that "
            f"{_SHARED} or more examples share: perhaps the frame around them "
            "(--template chooses what is looked for)."
        )
    if n_without := counts["without_words"]:
        console.say(f"{n_without} examples have no words and are in no list.")
    if others := corpus.not_read:
        kinds = sorted({Path(name).suffix or name for name in others})
        few = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        console.say(f"not read: {len(others)} files of other kinds ({few})")
    if corpus.n_unreadable:
        console.say(f"unreadable parts, not searched: {corpus.n_unreadable}")
        for fault in corpus.unreadable[:_PRINTED_FAULTS]:
            console.say(f"  {fault.file}:{fault.line}: {fault.reason}")
    lists = f"ids also in {FOUND_NAME}, {NOT_FOUND_NAME}"
    console.say(f"\n{MEANING}", f"\nresult: {out / RESULT_NAME} ({lists})")
