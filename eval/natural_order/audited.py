"""One file through the path of `audit`: checks, plan, scores, p-values, verdict."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from eval.natural_order.auditees import Auditee, Model, auditee
from eval.natural_order.kind import File
from eval.natural_order.kinds import KINDS
from jaxcontam.commands.order_checks import order_checks
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.repeats import without_repeats
from jaxcontam.methods import adjacency, direction
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.results import OrderResult, Pretest
from jaxcontam.verdict import MIN_EFFECT, decide

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
        model: Who is audited.
    """

    kind: str
    strength: float
    n: int
    seed: int
    nats: float = 0.0
    model: Model = "copying"

    @property
    def knows(self) -> bool:
        """Whether the model was given the file."""
        return self.nats > 0 or self.model == "planted"

    def file(self) -> File:
        """The file; the same case gives the same bytes."""
        return KINDS[self.kind].file(n=self.n, strength=self.strength, seed=self.seed)


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


def audited(case: Case, model: Auditee) -> Record:
    """Audit a file; those that fail their checks are scored, too."""
    began = time.process_time()
    benchmark = without_repeats(case.file().benchmark(f"{case.kind}-{case.seed}"))
    pretests = order_checks(benchmark, seed=case.seed)
    encoded = encode_examples(model.tokenizer(), benchmark.texts)
    planned = plan_test(
        benchmark,
        encoded,
        _ADJACENCY,
        prefix_id=model.prefix_id,
        context=model.context,
        seed=case.seed,
    )
    scored = score_test(planned, model.scorer(encoded))
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
        law=KINDS[case.kind].law,
        n_kept=len(benchmark),
        refused=not _passed(decided.pretests),
        failed=tuple(test.name for test in pretests if not test.passed),
        verdict=_verdict(decided),
        log10_p=forward.numbers.log10_p,
        adjacency_log10_p=attraction.numbers.log10_p,
        seconds=time.process_time() - began,
    )


def audited_case(case: Case, folder: Path) -> Record:
    """What a process does with a case.

    Args:
        case: The case.
        folder: Of the study, with the transformers in it.
    """
    return audited(case, auditee(case.model, case.nats, folder))


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
