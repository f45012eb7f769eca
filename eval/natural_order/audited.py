"""One file through the path of `audit`: checks, plan, scores, p-values, verdict."""

import dataclasses
import functools
import itertools
import time
from typing import Any

from eval.natural_order.background import documents
from eval.natural_order.copying import (
    CONTEXT,
    PREFIX_ID,
    Bigrams,
    CopyingPairs,
    CopyingScorer,
    WordEncoder,
    fit_bigrams,
    remember,
)
from eval.natural_order.kinds import KINDS
from jaxcontam.analyses.order_files import order_checks
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.repeats import without_repeats
from jaxcontam.methods import adjacency, direction
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.results import OrderResult, Pretest
from jaxcontam.verdict import MIN_EFFECT, decide

_N_DOCUMENTS = 2_000
# Where in the file the evidence lies enters no verdict, and takes time.
_ADJACENCY = dataclasses.replace(adjacency.METHOD, locates=False)
_DIRECTION = dataclasses.replace(direction.METHOD, locates=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file and who is asked about it.

    Attributes:
        kind: Of natural order; see `KINDS`.
        strength: One of the kind's.
        n: Rows.
        seed: Of the file and of the tests.
        nats: What a remembered boundary gains; 0 is a clean scorer.
    """

    kind: str
    strength: float
    n: int
    seed: int
    nats: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What an audit says of a case.

    Attributes:
        case: The case.
        law: Of its kind.
        n_kept: Rows without repeats.
        refused: Whether the checks of the deciding test fail, so that nobody would
            have scored the file.
        failed: Names of all checks that fail.
        verdict: As for a published order.
        log10_p: Of direction.
        adjacency_log10_p: Of adjacency, which would decide were the order random.
        seconds: CPU time.
    """

    case: Case
    law: str
    n_kept: int
    refused: bool
    failed: tuple[str, ...]
    verdict: str
    log10_p: float
    adjacency_log10_p: float
    seconds: float


def audited(case: Case, background: Bigrams) -> Record:
    """Audit a file by a copying scorer; files that fail their checks are scored too."""
    began = time.process_time()
    kind = KINDS[case.kind]
    file = kind.file(n=case.n, strength=case.strength, seed=case.seed)
    benchmark = without_repeats(file.benchmark(f"{case.kind}-{case.seed}"))
    pretests = order_checks(benchmark, seed=case.seed)
    encoder = WordEncoder(background.words)
    encoded = encode_examples(encoder, benchmark.texts)
    memory = remember(encoded.ids, case.nats) if case.nats else None
    planned = plan_test(
        benchmark,
        encoded,
        _ADJACENCY,
        prefix_id=PREFIX_ID,
        context=CONTEXT,
        seed=case.seed,
    )
    scored = score_test(planned, CopyingScorer(CopyingPairs(background, memory)))
    attraction, forward = (
        order_result(
            planned,
            scored,
            primary=method is _DIRECTION,
            pretests=pretests,
            method=method,
        )
        for method in (_ADJACENCY, _DIRECTION)
    )
    decided = decide([forward, attraction], min_effect=MIN_EFFECT)[0]
    return Record(
        case=case,
        law=kind.law,
        n_kept=len(benchmark),
        refused=not _passed(decided.pretests),
        failed=tuple(test.name for test in pretests if not test.passed),
        verdict=_verdict(decided),
        log10_p=forward.numbers.log10_p,
        adjacency_log10_p=attraction.numbers.log10_p,
        seconds=time.process_time() - began,
    )


@functools.cache
def background() -> Bigrams:
    """What the scorer has read; the same in every process."""
    texts = itertools.islice(documents("copier", seed=0), _N_DOCUMENTS)
    return fit_bigrams(list(texts))


def audited_case(case: Case) -> Record:
    """What a process does with a case."""
    return audited(case, background())


def fields_of(record: Record) -> dict[str, Any]:
    """A record as JSON takes it."""
    return dataclasses.asdict(record)


def record_from(fields: dict[str, Any]) -> Record:
    """Undo `fields_of`."""
    case = Case(**fields.pop("case"))
    return Record(case=case, failed=tuple(fields.pop("failed")), **fields)


def _passed(pretests: tuple[Pretest, ...]) -> bool:
    return all(test.passed for test in pretests)


def _verdict(result: OrderResult) -> str:
    assert result.verdict is not None
    return result.verdict
