"""Steps of a datatrove pipeline: for corpora of more than one machine.

Its executors run tasks on a machine, by Slurm or Ray, over its readers of local files,
buckets and the hub, and go on with those that were not done. `jaxcontam overlap COUNTS
BENCHMARK` makes the table of the counts that `FindExamples` writes.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from jaxcontam.data.corpus import Document
from jaxcontam.errors import install_hint
from jaxcontam.overlap.counts import SUFFIX, Tally, counts_bytes
from jaxcontam.overlap.index import Search, example_index, grouped, read_examples
from jaxcontam.overlap.occurrences import found_in_each

try:
    from datatrove.data import Document as TroveDocument
    from datatrove.io import DataFolderLike, get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.pipeline.writers.disk_base import DiskWriter
except ImportError as e:
    raise ImportError(f"steps need datatrove: {install_hint('corpus')} ({e})") from e


def numbered(
    reader: Any, data: dict[str, Any], path: str, id_in_file: int
) -> dict[str, Any]:
    """Adapter of a reader that keeps the file and line of each document.

    Without it an occurrence is named by the document's id.
    """
    document = reader._default_adapter(data, path, id_in_file)
    document["metadata"] |= {"file_path": path, "line": id_in_file + 1}
    return document


class FindExamples(PipelineStep):
    """Count the examples of a benchmark in the documents, which pass unchanged.

    Each task writes its counts when it ends; a task that is run again writes them anew.

    Args:
        benchmark: File of examples, as of `jaxcontam overlap`.
        counts: Folder for one file a task; may be in a bucket.
        text: As of `jaxcontam overlap`, and so is the one below.
        limit: Take the first examples.
    """

    type = "OVERLAP"
    name = "find examples"

    def __init__(
        self,
        benchmark: str | Path,
        counts: DataFolderLike,
        *,
        text: str | None = None,
        limit: int | None = None,
    ):
        super().__init__()
        _, forms = read_examples(benchmark, text=text, limit=limit)
        index = example_index(forms)
        self.counts = get_datafolder(counts)
        self.fingerprint = index.fingerprint
        # No index as a field: an executor writes all fields of a step as JSON.
        self.search = partial(Search, index)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Pass documents on; write the counts at the end."""
        search, tally = self.search(), Tally()
        for group in grouped(data):
            with self.track_time("batch"):
                tally.add(search.add([_document(one) for one in group]))
            yield from group
        about = {"index": self.fingerprint, "task": rank, "n_tasks": world_size}
        with self.counts.open(f"{rank:05d}{SUFFIX}", "wb") as file:
            file.write(counts_bytes(tally.total(), about))


class DropExamples(BaseFilter):
    """Drop documents in which an example of a benchmark is found, by any rule.

    The rules of `jaxcontam overlap` are applied to each document alone. What is dropped
    has the ids of the examples in its metadata, `examples`.

    Args:
        benchmark: File of examples.
        text: As of `jaxcontam overlap`, and so is the one below.
        limit: Take the first examples.
        exclusion_writer: Writes the documents that are dropped.
    """

    type = "OVERLAP"
    name = "drop examples"

    def __init__(
        self,
        benchmark: str | Path,
        *,
        text: str | None = None,
        limit: int | None = None,
        exclusion_writer: DiskWriter = None,  # pyright: ignore[reportArgumentType]
    ):
        super().__init__(exclusion_writer, batch_size=256)
        _, forms = read_examples(benchmark, text=text, limit=limit)
        self.found_in_each = partial(found_in_each, example_index(forms))

    def filter(self, doc: TroveDocument) -> bool | tuple[bool, str]:
        """False, and why, for a document that holds an example."""
        return self.filter_batch([doc])[0]

    def filter_batch(self, batch: list[TroveDocument]) -> list[bool | tuple[bool, str]]:
        """`filter` of each document."""
        found = self.found_in_each([_document(one) for one in batch])
        for one, examples in zip(batch, found, strict=True):
            if examples:
                one.metadata["examples"] = examples
        return [(False, "benchmark") if examples else True for examples in found]


def _document(one: TroveDocument) -> Document:
    metadata = one.metadata
    if "file_path" in metadata and type(metadata.get("line")) is int:
        return Document(one.text, str(metadata["file_path"]), metadata["line"])
    return Document(one.text, str(one.id))
