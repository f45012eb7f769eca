"""One file through the path of `audit`: checks, plan, scores, p-values, verdict."""

import dataclasses
from collections.abc import Callable
from typing import Any

from eval.natural_order.kinds import KINDS
from eval.natural_order.readers import (
    CONTEXT,
    PREFIX_ID,
    Gain,
    Parts,
    backgrounds,
    know,
    remember,
    scorer_of,
)
from jaxcontam.data.benchmark import Benchmark, without_repeats
from jaxcontam.data.encoding import encode_examples
from jaxcontam.orders.benchmarks import order_checks
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.methods import ADJACENCY, DIRECTION
from jaxcontam.orders.order_test import TestMethod, plan_test, score_test
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.result import OrderResult
from jaxcontam.proof.test_row import reference_result
from jaxcontam.proof.verdict import CONTAMINATED_LEVEL, decide
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.seam import SEAM, WHOLE, Seam

# Where in the file the evidence lies enters no verdict, and takes time.
_ADJACENCY = dataclasses.replace(ADJACENCY, locates=False)
_DIRECTION = dataclasses.replace(DIRECTION, locates=False)
# Field of a record -> what the reference knows, in parts of what the reader knows, and
# what it says of each pair, in parts of its scores.
_REFERENCES = {
    "verdict": (1.0, 1.0),
    "verdict_half": (0.5, 1.0),
    "verdict_flat": (1.0, 0.5),
    "verdict_ignorant": (0.0, 1.0),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file and who is asked about it.

    Attributes:
        seed: Of the file and of the tests.
        nats: What a remembered boundary gains; 0 is a clean scorer.
        knows: Nats that a natural sequel gains by the kind's `goes_on`, whatever the
            file's order; a clean scorer's as well.
    """

    kind: str
    strength: float
    n: int
    seed: int
    nats: float = 0.0
    knows: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Finding of an audit on a case.

    Attributes:
        n_kept: Rows without repeats.
        refused: Whether the checks of the deciding test fail, so that nobody would
            have scored the file.
        verdict: As for a published order, beside a reference that has read other texts
            and knows as well what follows what. It is asked where the p-value is at the
            level of an accusation, and nowhere else.
        verdict_half: The same beside one that gains half the nats from what it knows.
        verdict_flat: The same beside one that knows as much, and halves every score.
        verdict_ignorant: The same beside one that knows nothing.
        log10_p: Of direction, at the seam as audits score it.
        adjacency_log10_p: Of whole pairs; it enters no verdict.
    """

    case: Case
    law: str
    n_kept: int
    refused: bool
    failed: tuple[str, ...]
    verdict: str
    verdict_half: str
    verdict_flat: str
    verdict_ignorant: str
    log10_p: float
    adjacency_log10_p: float


def audited_case(case: Case) -> Record:
    """Audit a file, whether or not its checks pass, beside a clean reference."""
    kind = KINDS[case.kind]
    file = case_file(case)
    pretests = order_checks(file, AuditDesign(seed=case.seed))
    tokenizer, own, other = backgrounds()
    encoded = encode_examples(tokenizer, file.texts)

    def asked(
        method: TestMethod, seam: Seam
    ) -> tuple[OrderResult, Callable[[float, float], OrderResult]]:
        """What the test says alone; and beside a reference, by what it knows."""
        planned = plan_test(
            file,
            encoded,
            method,
            prefix_id=PREFIX_ID,
            context=CONTEXT,
            seed=case.seed,
            seam=seam,
        )
        assert isinstance(planned.layout.plan, PairPlan)
        parts = Parts.of(planned.layout.plan)

        def known(share: float) -> list[Gain]:
            if not case.knows:
                return []
            assert kind.goes_on is not None, f"nothing is known of {kind.name}"
            return [know(file.texts, parts, kind.goes_on, share * case.knows)]

        memory = [remember(parts, case.nats)] if case.nats else []
        scored = score_test(planned, scorer_of(own, [*memory, *known(1.0)]))
        alone = planned.result(scored, primary=True, pretests=pretests, method=method)

        def beside(share: float, flatness: float) -> OrderResult:
            pairs = score_test(planned, scorer_of(other, known(share))).evidence.pairs
            assert pairs is not None
            found = reference_result(
                method,
                dataclasses.replace(scored.evidence, reference_pairs=flatness * pairs),
                name="another reader",
                fingerprint="",
                seed=case.seed,
                content_digest=file.content_digest,
            )
            return dataclasses.replace(alone, reference=found)

        return alone, beside

    attraction, _ = asked(_ADJACENCY, WHOLE)
    forward, beside = asked(_DIRECTION, SEAM)
    verdicts = {}
    for name, reference in _REFERENCES.items():
        # No reference turns a larger p-value into an accusation.
        if forward.p_value <= CONTAMINATED_LEVEL and not forward.refusals:
            forward = beside(*reference)
        verdicts[name] = decide([forward], min_effect=MIN_EFFECT)[0].verdict
    return Record(
        case=case,
        law=kind.law,
        n_kept=len(file),
        refused=bool(forward.refusals),
        failed=tuple(test.name for test in pretests if not test.passed),
        log10_p=forward.numbers.log10_p,
        adjacency_log10_p=attraction.numbers.log10_p,
        **verdicts,
    )


def case_file(case: Case) -> Benchmark:
    """The file of a case, without repeats."""
    kind = KINDS[case.kind]
    return without_repeats(kind.file(n=case.n, strength=case.strength, seed=case.seed))


def record_from(fields: dict[str, Any]) -> Record:
    """A record from its fields, as `dataclasses.asdict` gives them."""
    case, failed = Case(**fields["case"]), tuple(fields["failed"])
    return Record(**{**fields, "case": case, "failed": failed})


def inputs_of(case: Case) -> tuple[str, dict[str, Any]]:
    """Name of the record of a case, and the case."""
    return "-".join(map(str, dataclasses.astuple(case))), dataclasses.asdict(case)


def maker() -> Callable[[Case], dict[str, Any]]:
    """Returns what audits a case."""
    return lambda case: {"record": dataclasses.asdict(audited_case(case))}
