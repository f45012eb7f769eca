"""Models of the power study in processes of their own, one a core."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from eval.power.model import ModelRecord, Study, planted_model
from eval.power.records import record_key, record_path, write_record
from train.allocator import keep_freed_memory
from train.population_plan import Texts, texts_in_memory
from train.population_workers import Failure, in_this_process, over_processes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process must know to make any model.

    Attributes:
        out: Folder of the study.
        documents: Background texts.
        questions: The pool that sets are drawn from.
        corpus: Digest of both.
        code: Git commit.
    """

    out: Path
    documents: tuple[str, ...]
    questions: tuple[str, ...]
    corpus: str
    code: str | None


Task = tuple[Study, int]
"""A population, and the seed of one of its models."""


def made(
    job: Job, tasks: Sequence[Task], *, n_processes: int
) -> Iterator[tuple[Task, ModelRecord | Failure]]:
    """Make models; each writes its record before it is told of.

    A population's models stay together, so that a process compiles once for many.
    """
    if n_processes == 1:
        yield from in_this_process(open_maker, job, tasks)
        return
    yield from over_processes(open_maker, job, tasks, n_processes=n_processes)


def open_maker(job: Job) -> Callable[[Task], ModelRecord]:
    """What a process does first; returns what makes a model."""
    from jaxcontam.scoring.compiled import keep_compiled

    keep_freed_memory()
    keep_compiled()
    texts: dict[tuple[int, int, str], Texts] = {}

    def make(task: Task) -> ModelRecord:
        study, seed = task
        vocab_size = study.preset.decoder.vocab_size
        kind = (vocab_size, study.max_example_tokens, study.separator)
        if kind not in texts:
            texts[kind] = texts_in_memory(job.documents, job.questions, study)
        record = planted_model(study, texts[kind], seed=seed)
        write_record(
            record_path(job.out, study, seed),
            record_key(study, seed, corpus=job.corpus, code=job.code),
            record,
            any_code_key=record_key(study, seed, corpus=job.corpus, code=None),
        )
        return record

    return make
