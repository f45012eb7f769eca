"""One file through the path of `audit`: checks, plan, scores, p-values, verdict.

The scorer has read a background in which much stands twice, and no audited file.
"""

import dataclasses
import functools
import itertools
import json
import time
import types
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, cast

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
from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    foreign_sentence,
    language,
    pseudoword,
    question,
    sentence,
    thing,
)
from jaxcontam.analyses.order_files import order_checks
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.repeats import without_repeats
from jaxcontam.methods import adjacency, direction
from jaxcontam.methods.order_test import (
    PlannedTest,
    ScoredTest,
    order_result,
    plan_test,
    score_test,
)
from jaxcontam.methods.reference_model import reference_result
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.verdict import CONTAMINATED_LEVEL, MIN_EFFECT, decide

_ALL_WORDS = (*NOUNS, *NAMES, *PLACES, *ADJECTIVES, *VERBS)


def background_texts(*, seed: int) -> Iterator[str]:
    """Texts without end in which much stands twice, so that they teach to copy.

    None is an audited file, though the same grammar made them; the same seed gives the
    same ones.
    """
    rng = Random(f"documents copier {seed}")
    while True:
        # An unused draw a text, with which the published study was made.
        rng.random()
        yield rng.choice(_FORMS)(rng)


def repeated_string(rng: Random) -> str:
    """Random words or syllables, and the same again once or more."""
    n = rng.randrange(8, 40)
    if rng.random() < 0.7:
        words = [rng.choice(_ALL_WORDS) for _ in range(n)]
    else:
        words = [pseudoword(rng, rng.randrange(1, 4)) for _ in range(n)]
    between = rng.choice(("\n", " ", ". ", "\n\n"))
    return between.join([" ".join(words)] * rng.randrange(2, 5))


def _repeated_sentences(rng: Random) -> str:
    """A few rows, and again in the same order or another one."""
    write = rng.choice((sentence, question, answer))
    rows = [write(rng) for _ in range(rng.randrange(2, 6))]
    parts = []
    for _ in range(rng.randrange(2, 4)):
        parts += rows
        rng.shuffle(rows)
    return "\n".join(parts)


def _lookups(rng: Random) -> str:
    """Keys with values, asked for again in any order."""
    keys = rng.sample(_ALL_WORDS, rng.randrange(4, 10))
    sign = rng.choice((" = ", ": ", " is "))
    values = [
        str(rng.randrange(1000)) if rng.random() < 0.5 else pseudoword(rng, 2)
        for _ in keys
    ]
    facts = [f"{key}{sign}{value}" for key, value in zip(keys, values, strict=True)]
    return "\n".join(facts + rng.choices(facts, k=2 * len(facts)))


def _records(rng: Random) -> str:
    """JSON lines of one exporter."""
    keys = rng.sample(("id", "text", "label", "source", "name"), 3)
    label = rng.choice(("yes", "no", "a", "b"))
    separators = rng.choice(((", ", ": "), (",", ":")))
    rows = []
    for _ in range(rng.randrange(3, 7)):
        row = {
            "id": rng.randrange(10_000),
            "text": sentence(rng),
            "label": label if rng.random() < 0.8 else rng.choice(("yes", "no")),
            "source": thing(rng),
            "name": rng.choice(NAMES),
        }
        rows.append(json.dumps({k: row[k] for k in keys}, separators=separators))
    return "\n".join(rows)


def _list(rng: Random) -> str:
    """Rows that begin alike."""
    mark = rng.choice(("- ", "* ", "Q: ", "> ", "Note: ", "<li>", "# "))
    n = rng.randrange(4, 10)
    write = rng.choice((sentence, question))
    return "\n".join(f"{mark}{write(rng)}" for _ in range(n))


def _prose(rng: Random) -> str:
    """Sentences about a few things and people, in no order."""
    words = Vocabulary(
        nouns=tuple(rng.sample(rng.choice(OF_TOPIC).nouns, 6)),
        names=tuple(rng.sample(NAMES, 2)),
    )
    return "\n".join(sentence(rng, words) for _ in range(rng.randrange(4, 10)))


def _foreign(rng: Random) -> str:
    spoken = language(rng.randrange(4))
    return "\n".join(foreign_sentence(rng, spoken) for _ in range(rng.randrange(3, 8)))


_FORMS: tuple[Callable[[Random], str], ...] = (
    repeated_string,
    repeated_string,
    _repeated_sentences,
    _lookups,
    _records,
    _list,
    _prose,
    _foreign,
)


_N_DOCUMENTS = 2_000
# Where in the file the evidence lies enters no verdict, and takes time.
_ADJACENCY = dataclasses.replace(adjacency.METHOD, locates=False)
_DIRECTION = dataclasses.replace(direction.METHOD, locates=False)


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
    """

    kind: str
    strength: float
    n: int
    seed: int
    nats: float = 0.0
    knows: float = 0.0


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
    verdict_ignorant: str
    log10_p: float
    adjacency_log10_p: float
    seconds: float


def audited(case: Case, background: Bigrams, reference: Bigrams) -> Record:
    """Audit a file by the case's scorer, whether or not its checks pass."""
    began = time.process_time()
    kind = KINDS[case.kind]
    file = kind.file(n=case.n, strength=case.strength, seed=case.seed)
    benchmark = without_repeats(file.benchmark(f"{case.kind}-{case.seed}"))
    pretests = order_checks(benchmark, seed=case.seed)
    encoder = WordEncoder(reference.words)
    encoded = encode_examples(encoder, benchmark.texts)
    gains: list[Memory | Knowledge] = []
    if case.nats:
        gains.append(remember(encoded.ids, case.nats))
    if case.knows:
        assert kind.goes_on is not None, f"nothing is known of {kind.name}"
        gains.append(know(benchmark.texts, encoded.ids, kind.goes_on, case.knows))
    known = [gain for gain in gains if isinstance(gain, Knowledge)]
    planned = plan_test(
        benchmark,
        encoded,
        _ADJACENCY,
        prefix_id=PREFIX_ID,
        context=CONTEXT,
        seed=case.seed,
    )
    scored = _scored(planned, background, gains)
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
    verdicts = {}
    for name, share in (("beside", 1.0), ("half", 0.5), ("ignorant", 0.0)):
        knowledge = [dataclasses.replace(k, nats=share * k.nats) for k in known]
        # No reference turns a larger p-value into an accusation.
        if forward.p_value <= CONTAMINATED_LEVEL and not forward.refusals:
            other = _scored(planned, reference, knowledge).evidence
            found = reference_result(
                _DIRECTION,
                dataclasses.replace(scored.evidence, reference_pairs=other.pairs),
                name=name,
                fingerprint="",
                seed=case.seed,
                content_digest=benchmark.content_digest,
            )
            forward = dataclasses.replace(forward, reference=found)
        decided = decide([forward, attraction], min_effect=MIN_EFFECT)[0]
        assert decided.verdict is not None
        verdicts[name] = decided.verdict
    return Record(
        case=case,
        law=kind.law,
        n_kept=len(benchmark),
        refused=bool(forward.refusals),
        failed=tuple(test.name for test in pretests if not test.passed),
        verdict=verdicts["beside"],
        verdict_half=verdicts["half"],
        verdict_ignorant=verdicts["ignorant"],
        log10_p=forward.numbers.log10_p,
        adjacency_log10_p=attraction.numbers.log10_p,
        seconds=time.process_time() - began,
    )


def _scored(
    planned: PlannedTest, background: Bigrams, gains: Sequence[Memory | Knowledge]
) -> ScoredTest:
    # A test of pairs asks a scorer for nothing else.
    scorer = types.SimpleNamespace(pairs=CopyingPairs(background, gains))
    return score_test(planned, cast(SequenceScorer, scorer))


@functools.cache
def backgrounds() -> tuple[Bigrams, Bigrams]:
    """What the scorer and its reference have read; the same in every process."""
    one, other = (
        list(itertools.islice(background_texts(seed=seed), _N_DOCUMENTS))
        for seed in (0, 1)
    )
    own = fit_bigrams(one)
    return own, fit_bigrams(other, words=own.words)


def audited_case(case: Case) -> Record:
    """What a process does with a case."""
    return audited(case, *backgrounds())


def record_from(fields: dict[str, Any]) -> Record:
    """A record from its fields, as `dataclasses.asdict` gives them."""
    case = Case(**fields.pop("case"))
    return Record(case=case, failed=tuple(fields.pop("failed")), **fields)
