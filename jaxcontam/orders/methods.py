"""Tests of the order of a file: `TESTS`, a row each, the deciding ones first.

Dimension key
    K  strata, or shards
    M  orders, the published one first
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.errors import InputError, check_names, unknown_name
from jaxcontam.orders import answer_options
from jaxcontam.orders.order_test import OrderFile, TestMethod
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.methods import Words, joined_rows, words_of
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.orders import reversed_orders, split_strata, stratum_size
from jaxcontam.stats.pair_test import ADJACENCY as ADJACENCY_STATISTIC
from jaxcontam.stats.pair_test import DIRECTION as DIRECTION_STATISTIC
from jaxcontam.stats.pair_test import adjacency_test, direction_test
from jaxcontam.stats.randomisation import (
    MODEL_TOLERANCE,
    SMALLEST_P,
    randomisation_test,
)
from jaxcontam.stats.result import OrderNumbers, order_effect

# A reversal keeps no neighbour, so short strata lose little and give more of them.
LARGEST_STRATUM = 6

# The paper's number of shards.
N_SHARDS = 50

ADJACENCY = PairMethod(
    name="adjacency",
    # All 8! orders are columns: 40,320 without a draw.
    size=8,
    statistic=ADJACENCY_STATISTIC,
    analyse=adjacency_test,
    locates=True,
    null="exchangeability",
    validity="exact",
    cost="8 passes, prefixes shared",
    finds="the published order of neighbours, at few copies; not shuffled copies",
    source="exchangeability as in Oren et al. 2023, arXiv:2310.17623; path statistic "
    "of a double-centred pair matrix",
    words=ProofWords(
        chance="in each of {n_strata} strata the published order would be as likely as "
        "any other of {orders} to put expected examples after each other; the summed "
        "score would reach the observed one with probability {p}. The score sums over "
        "neighbours how likely an example is after the one before it, minus how likely "
        "it is after any example",
        takes_reference=True,
    ),
)


DIRECTION = PairMethod(
    name="direction",
    # The strata of adjacency, so that one scoring serves both.
    size=ADJACENCY.size,
    statistic=DIRECTION_STATISTIC,
    analyse=direction_test,
    whole=False,
    locates=True,
    null="reversibility",
    validity="exact",
    cost="2.5 passes; none in addition to adjacency",
    finds="the published order of neighbours, even if neighbours are alike",
    source="reversals of runs in the test of Oren et al. 2023, arXiv:2310.17623; "
    "antisymmetric part of a double-centred pair matrix",
    words=ProofWords(
        meaning="A small p-value says that the model expects examples after those "
        "published before them, and less so the other way round. In most files "
        "neighbours are alike, which raises both alike. Three things raise only the "
        "published direction: memory, an order that means something (steps, dates), "
        "and kinds that take turns. ",
        assumed={
            "reversibility": "that, before any model was trained, each run of four "
            "examples was as likely to be published backwards, given all others; "
            "similar examples may be adjacent, if each kind follows another as often "
            "as it precedes it"
        },
        chance="in each of {n_strata} strata every run of at most four examples would "
        "be as likely backwards{within} (up to {n_versions} ways); the summed score "
        "would reach the observed one with probability {p}. The score sums how likely "
        "an example is after those before it, minus how likely they are after it; what "
        "makes it likely after any example is removed",
        unit="nats forwards minus backwards",
        null_caption="Sum over strata of the published order's score, and the same sum "
        "when each run of at most four examples is reversed at random.",
        takes_reference=True,
    ),
)


def fitting_strata(
    file: OrderFile, n_orders: int, *, limit: int | None = None
) -> list[np.ndarray]:
    """Contiguous strata that fit the context, of at most `limit` examples."""
    size = stratum_size(
        file.n_examples, file.n_ids, file.context, n_orders, limit=limit
    )
    return split_strata(file.n_examples, size)


def stratified_numbers(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int
) -> OrderNumbers:
    """Exact p-value that the published orders' summed scores are this high.

    Null hypothesis: the model is indifferent to the order of exchangeable examples
    within each stratum. Valid at any number of strata and orders. Blind to a model that
    saw the examples in other orders. The seed is that of the Monte Carlo cross-check.

    Source:
        Oren et al., arXiv:2310.17623, section 3.2: the same scores. Departure: the
        law of the summed scores is computed exactly instead of a t-test over shards.
    """
    return randomisation_test(loglik_KM, boundaries_K, scores="auto", seed=seed)


STRATIFIED = OrderMethod(
    name="stratified",
    strata=fitting_strata,
    analyse=stratified_numbers,
    default_orders=9,
    locates=True,
    null="exchangeability",
    validity="exact",
    cost="m + 1 passes (10)",
    finds="the published order of neighbours; not shuffled copies",
    source="Oren et al. 2023, arXiv:2310.17623, with an exact distribution",
)


def reversal_numbers(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int
) -> OrderNumbers:
    """Exact sign-flip p-value that strata score higher forwards than backwards.

    Null hypothesis: reversibility, which grouped and label-sorted files satisfy too.
    Not valid where order has an arrow: numbered items, dates, dialogue. Without groups
    a reversal breaks s - 1 neighbours. The seed is that of the Monte Carlo cross-check.

    Source:
        A two-element group of orders in the test of Oren et al., arXiv:2310.17623.
    """
    return randomisation_test(loglik_KM, boundaries_K, scores="centred", seed=seed)


REVERSAL = OrderMethod(
    name="reversal",
    strata=functools.partial(fitting_strata, limit=LARGEST_STRATUM),
    analyse=reversal_numbers,
    draw=reversed_orders,
    default_orders=1,
    counted_boundaries=True,
    locates=True,
    null="reversibility",
    validity="exact",
    cost="2 passes",
    finds="the direction of the published order; holds for grouped files",
    source="a two-order group in Oren et al. 2023, arXiv:2310.17623",
)


def permutation_numbers(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int
) -> OrderNumbers:
    """(1 + #{orders that score as high}) / (m + 1), ties counting against detection.

    Null hypothesis: the model is indifferent to the order of exchangeable examples. The
    p-value is never below 1 / (m + 1), however strong the contamination. The seed
    changes nothing: one stratum has nothing to re-draw.

    Source:
        Oren et al., arXiv:2310.17623, section 3.1; Phipson and Smyth (2010) for the
        added 1.
    """
    numbers = randomisation_test(loglik_KM, boundaries_K, seed=seed)
    return dataclasses.replace(numbers, p_monte_carlo=numbers.p_value)


PERMUTATION = OrderMethod(
    name="permutation",
    # The whole file as one stratum, scored in windows.
    strata=lambda file, n_orders: [np.arange(file.n_examples)],
    analyse=permutation_numbers,
    default_orders=99,
    windowed=True,
    null="exchangeability",
    validity="exact",
    cost="m + 1 passes (100), twice that in windows",
    finds="the published order of the file; p not below 1 / (m + 1)",
    source="Oren et al. 2023, arXiv:2310.17623, section 3.1",
)


def shards(
    file: OrderFile, n_orders: int, *, n_shards: int | None = None
) -> list[np.ndarray]:
    """Contiguous shards of at least 2 examples; 50, or fewer in a small file."""
    most = file.n_examples // 2
    if n_shards is not None and n_shards > most:
        raise InputError(
            f"{n_shards} shards of {file.n_examples} examples: at most {most} have two",
            hint=f"shards={most} or fewer",
        )
    n_shards = n_shards or min(N_SHARDS, most)
    return np.array_split(np.arange(file.n_examples), n_shards)


def t_numbers(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int, *, ddof: int = 1
) -> OrderNumbers:
    """One-sided t-test that shards score higher in the published order.

    Null hypothesis: the mean over shards of (published minus mean of m random orders)
    is at most zero. Asymptotic in the number of shards: with 10 left-skewed shards its
    size is 13 % at a nominal 5 %. A constant scorer gives p = 1. `ddof` 1 is the
    unbiased variance; 0 repeats the released code. The seed changes nothing: nothing is
    drawn.

    Source:
        Oren et al., arXiv:2310.17623, section 3.2. Departures: ddof 1 by default, and
        the upper tail itself, where the released 1 - cdf is 0 below 1e-16.
    """
    from scipy import stats

    K, _ = loglik_KM.shape
    if K < 2:
        raise ValueError(f"a t-test needs at least 2 shards, got {K}")
    if not np.isfinite(loglik_KM).all():
        raise ValueError("log-likelihoods must be finite")
    gains_K = loglik_KM[:, 0] - loglik_KM[:, 1:].mean(axis=1)
    tolerance = MODEL_TOLERANCE * float(np.abs(loglik_KM).max())
    spread = float(gains_K.std(ddof=ddof))
    statistic = log_p = 0.0
    if float(np.abs(gains_K).max()) > tolerance:
        statistic = float(gains_K.mean()) / max(spread, tolerance) * math.sqrt(K)
        log_p = float(stats.t.logsf(statistic, K - 1))
    effect = order_effect(
        loglik_KM, boundaries_K, p_floor=None, tolerance=tolerance * K
    )
    return OrderNumbers(
        statistic=statistic,
        p_value=max(math.exp(log_p), SMALLEST_P),
        log10_p=log_p / math.log(10),
        **effect._asdict(),
        scores="centred",
    )


SHARDED_T = OrderMethod(
    name="sharded_t",
    strata=shards,
    analyse=t_numbers,
    default_orders=49,
    windowed=True,
    fewest_strata=2,
    null="exchangeability",
    validity="asymptotic",
    cost="m + 1 passes (50; the paper: 251), twice that in windows",
    finds="as stratified, but only approximate: for comparison with the paper",
    source="Oren et al. 2023, arXiv:2310.17623, section 3.2",
    words=ProofWords(
        approximation="; and that there are enough shards for the t-test, which is "
        "exact only for many",
        chance="the mean gain of {n_strata} shards over random orders would be as many "
        "standard errors above 0 with probability {p}, if there were many shards with "
        "normal gains",
    ),
)

SHARDED_T_RELEASED = dataclasses.replace(
    SHARDED_T,
    name="sharded_t_released",
    analyse=functools.partial(t_numbers, ddof=0),
    finds="the released code's variance (ddof 0): its p-value is too small",
    source="code of Oren et al. 2023",
)


_HERE: tuple[TestRow, ...] = (
    *(DIRECTION, ADJACENCY, STRATIFIED, REVERSAL, PERMUTATION),
    *(SHARDED_T, SHARDED_T_RELEASED, answer_options.METHOD),
)

TESTS: Mapping[str, TestRow]
"""Tests that may follow `--tests`, those of other packages last."""

WORDS: Words
"""Words of reports for each."""


def methods_to_score(names: Sequence[str]) -> list[TestRow]:
    """Tests that names after `--tests` ask for."""
    check_names("test", names, _tests())
    return [_tests()[name] for name in names]


@dataclasses.dataclass(frozen=True, slots=True)
class AskedTest:
    """A test as `--tests NAME[:N][:fixed][:shards=K]` asks for it.

    Attributes:
        n_orders: Random orders a stratum; None takes the test's own number.
        fixed: Right options keep their places.
        n_shards: Shards of a t-test over shards; None takes the paper's number.
    """

    name: str
    n_orders: int | None = None
    fixed: bool = False
    n_shards: int | None = None

    @property
    def method(self) -> TestRow:
        """The test, over as many shards as were asked for."""
        method = _tests()[self.name]
        if self.n_shards is None:
            return method
        strata = functools.partial(shards, n_shards=self.n_shards)
        return dataclasses.replace(method, strata=strata)


def asked_tests(
    words: Sequence[str], *, known: Collection[str] | None = None
) -> tuple[AskedTest, ...]:
    """Tests that words after `--tests` ask for, each once."""
    found: dict[str, AskedTest] = {}
    for word in words:
        name, *settings = (part.strip() for part in word.split(":"))
        check_names("test", (name,), _tests() if known is None else known)
        own = _tests()[name].default_orders
        is_options = name == answer_options.METHOD.name
        is_sharded = name in (SHARDED_T.name, SHARDED_T_RELEASED.name)
        has_number = own not in (None, 1)
        n, fixed, n_shards = None, False, None
        for setting in settings:
            number = setting.removeprefix("shards=") if is_sharded else setting
            is_number = number.isdecimal() and int(number) > 0
            if setting == "fixed" and is_options:
                fixed = True
            elif number != setting and is_number and int(number) > 1 and not n_shards:
                n_shards = int(number)
            elif number == setting and has_number and n is None and is_number:
                n = int(number)
            else:
                takes = "a number of orders, at least 1" if has_number else "no number"
                raise InputError(
                    f"--tests {word.strip()}: {name} takes {takes}"
                    + (", and the word fixed" if is_options else "")
                    + (", and shards=K, at least 2" if is_sharded else ""),
                    hint=f"{own} is its own; each more costs one pass over the data"
                    if has_number
                    else "leave it out",
                )
        asked = AskedTest(name, n, fixed, n_shards)
        if found.setdefault(name, asked) != asked:
            raise InputError(
                f"--tests names {name} twice, in different ways", hint="name it once"
            )
    return tuple(found.values())


def order_method(name: str) -> TestMethod:
    """Look up a test of the order of a file by name."""
    tests = {key: row for key, row in _tests().items() if isinstance(row, TestMethod)}
    if name not in tests:
        raise unknown_name("test", name, tests)
    return tests[name]


def __getattr__(name: str) -> Any:
    """`TESTS` and `WORDS`, once they are asked for.

    A package's row may need this module whole.
    """
    if name == "TESTS":
        return _tests()
    if name == "WORDS":
        return {name: words_of(row) for name, row in _tests().items()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _tests() -> Mapping[str, TestRow]:
    return joined_rows(_HERE, TestRow)
