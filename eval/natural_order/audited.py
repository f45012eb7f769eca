"""One file through the path of `audit`: checks, plan, scores, p-values, verdict.

Its readers have read a background in which much stands twice, and no audited file, but
for transformers that were trained on some.
"""

import dataclasses
import functools
import itertools
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from eval.natural_order.background import background_texts
from eval.natural_order.copying import (
    CONTEXT,
    PREFIX_ID,
    Bigrams,
    CopyingPairs,
    Knowledge,
    Memory,
    WordEncoder,
    fit_bigrams,
    know,
    remember,
)
from eval.natural_order.kinds import KINDS
from eval.natural_order.transformers import SHAPES, model_folder
from jaxcontam.data.benchmark import Benchmark, without_repeats
from jaxcontam.data.encoding import Encoded, Encoder, encode_examples
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.orders.benchmarks import order_checks
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.methods import ADJACENCY, DIRECTION
from jaxcontam.orders.order_test import PlannedTest, plan_test, score_test
from jaxcontam.proof.test_row import reference_result
from jaxcontam.proof.verdict import CONTAMINATED_LEVEL, MIN_EFFECT, decide
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.opened import SequenceScorer

_N_DOCUMENTS = 2_000
# Where in the file the evidence lies enters no verdict, and takes time.
_ADJACENCY = dataclasses.replace(ADJACENCY, locates=False)
_DIRECTION = dataclasses.replace(DIRECTION, locates=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file and who is asked about it.

    Attributes:
        kind: Kind of natural order; see `KINDS`.
        strength: One of the kind's.
        n: Rows.
        seed: Seeds the file and of the tests.
        nats: What a remembered boundary gains; 0 is a clean scorer.
        knows: Nats that a natural sequel gains by the kind's `goes_on`, whatever the
            file's order; a clean scorer's as well.
        reader: Name of a transformer; "" is the copying scorer.
        copies: Of the file that the transformer has read.
    """

    kind: str
    strength: float
    n: int
    seed: int
    nats: float = 0.0
    knows: float = 0.0
    reader: str = ""
    copies: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What an audit says of a case.

    Attributes:
        case: The case.
        law: Law of its kind.
        n_kept: Rows without repeats.
        refused: Whether the checks of the deciding test fail, so that nobody would
            have scored the file.
        failed: Names of all checks that fail.
        verdict: As for a published order, beside a reference that has read other texts
            and knows as well what follows what. It is asked where the p-value is at the
            level of an accusation, and nowhere else.
        verdict_half: The same beside one that gains half the nats from what it knows.
        verdict_flat: The same beside one that knows as much, and halves every score.
        verdict_ignorant: The same beside one that knows nothing.
        log10_p: log10 p of direction.
        adjacency_log10_p: log10 p of adjacency, which decides for random orders.
        seconds: CPU time.
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
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """Whom a case asks.

    Attributes:
        tokenizer: Gives its ids.
        prefix_id: Before each text.
        context: Ids that it reads at once.
        scorer: Scores pairs; takes what the reader remembers and knows besides.
    """

    tokenizer: Encoder
    prefix_id: int
    context: int
    scorer: Callable[[Sequence[Memory | Knowledge]], SequenceScorer]


def audited(case: Case, own: Reader, other: Reader) -> Record:
    """Audit a file by a case's reader, whether or not its checks pass.

    Args:
        case: The case.
        own: Its reader.
        other: A clean one, the reference.
    """
    began = time.process_time()
    kind = KINDS[case.kind]
    file = case_file(case)
    pretests = order_checks(file, AuditDesign(seed=case.seed))
    planned, encoded = _planned(case, file, own)
    gains: list[Memory | Knowledge] = []
    if case.nats:
        gains.append(remember(encoded.ids, case.nats))
    if case.knows:
        assert kind.goes_on is not None, f"nothing is known of {kind.name}"
        gains.append(know(file.texts, encoded.ids, kind.goes_on, case.knows))
    known = [gain for gain in gains if isinstance(gain, Knowledge)]
    scored = score_test(planned, own.scorer(gains))
    attraction, forward = (
        planned.result(
            scored,
            primary=method is _DIRECTION,
            pretests=pretests,
            method=method,
        )
        for method in (_ADJACENCY, _DIRECTION)
    )
    verdicts = {}
    for name, share, flatness in (
        ("verdict", 1.0, 1.0),
        ("verdict_half", 0.5, 1.0),
        ("verdict_flat", 1.0, 0.5),
        ("verdict_ignorant", 0.0, 1.0),
    ):
        knowledge = [dataclasses.replace(k, nats=share * k.nats) for k in known]
        # No reference turns a larger p-value into an accusation.
        if forward.p_value <= CONTAMINATED_LEVEL and not forward.refusals:
            same = _planned(case, file, other)[0]
            asked = score_test(same, other.scorer(knowledge)).evidence.pairs
            assert asked is not None
            found = reference_result(
                _DIRECTION,
                dataclasses.replace(scored.evidence, reference_pairs=flatness * asked),
                name=name,
                fingerprint="",
                seed=case.seed,
                content_digest=file.content_digest,
            )
            forward = dataclasses.replace(forward, reference=found)
        decided = decide([forward, attraction], min_effect=MIN_EFFECT)[0]
        assert decided.verdict is not None
        verdicts[name] = decided.verdict
    return Record(
        case=case,
        law=kind.law,
        n_kept=len(file),
        refused=bool(forward.refusals),
        failed=tuple(test.name for test in pretests if not test.passed),
        log10_p=forward.numbers.log10_p,
        adjacency_log10_p=attraction.numbers.log10_p,
        seconds=time.process_time() - began,
        **verdicts,
    )


def case_file(case: Case) -> Benchmark:
    """The file of a case, without repeats."""
    file = KINDS[case.kind].file(n=case.n, strength=case.strength, seed=case.seed)
    return without_repeats(file.benchmark(f"{case.kind}-{case.seed}"))


def _planned(
    case: Case, file: Benchmark, reader: Reader
) -> tuple[PlannedTest, Encoded]:
    encoded = encode_examples(reader.tokenizer, file.texts)
    planned = plan_test(
        file,
        encoded,
        _ADJACENCY,
        prefix_id=reader.prefix_id,
        context=reader.context,
        seed=case.seed,
    )
    return planned, encoded


@functools.cache
def _backgrounds() -> tuple[Bigrams, Bigrams]:
    """What the scorer and its reference have read; the same in every process."""
    one, other = (
        list(itertools.islice(background_texts(seed=seed), _N_DOCUMENTS))
        for seed in (0, 1)
    )
    own = fit_bigrams(one)
    return own, fit_bigrams(other, words=own.words)


def _copiers() -> list[Reader]:
    """The copying scorer and its reference, with ids in common."""
    backgrounds = _backgrounds()
    tokenizer = WordEncoder(backgrounds[1].words)

    def scorer(background: Bigrams, gains: Sequence[Memory | Knowledge]):
        # A test of pairs asks a scorer for nothing else.
        pairs = CopyingPairs(background, gains)
        return cast(SequenceScorer, types.SimpleNamespace(pairs=pairs))

    return [
        Reader(tokenizer, PREFIX_ID, CONTEXT, functools.partial(scorer, background))
        for background in backgrounds
    ]


@functools.cache
def _transformer(model: Path) -> Reader:
    """A transformer, which has no gains beside what it has read."""
    checkpoint = load_checkpoint(str(model))
    assert checkpoint.prefix_id is not None
    scorer = checkpoint_scorer(checkpoint, store=None)
    return Reader(
        checkpoint.tokenizer,
        checkpoint.prefix_id,
        checkpoint.config.context,
        lambda _: scorer,
    )


def audited_case(case: Case, models: Path = Path()) -> Record:
    """What a process does with a case.

    Args:
        case: The case.
        models: Folder of the transformers, for cases that ask one.
    """
    if not case.reader:
        return audited(case, *_copiers())
    (other,) = set(SHAPES) - {case.reader}
    planted = case.copies > 0
    own = _transformer(model_folder(case.reader, models, planted=planted))
    return audited(case, own, _transformer(model_folder(other, models)))


def record_from(fields: dict[str, Any]) -> Record:
    """A record from its fields, as `dataclasses.asdict` gives them."""
    case = Case(**fields.pop("case"))
    return Record(case=case, failed=tuple(fields.pop("failed")), **fields)
