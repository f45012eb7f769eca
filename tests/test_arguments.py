"""Arguments of another kind than their annotations say are one line that names them."""

import decimal
import inspect
import random
import re
from pathlib import Path

import numpy as np
import pytest

import jaxcontam as jc
from jaxcontam.errors import InputError

_RNG = random.Random(0)
_WORDS = ["".join(_RNG.choices("abcdefghijkl", k=5)) for _ in range(300)]
TEXTS = [" ".join(_RNG.choices(_WORDS, k=7)) for _ in range(64)]
MATRIX = np.random.default_rng(0).normal(size=(40, 10))
NAN = float("nan")


def scorer(pairs):
    return [-len(text) - len(set(context + text)) / 7 for context, text in pairs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": set(TEXTS)}, r"texts must be a text or a path .*, got set"),
        ({"texts": dict.fromkeys(TEXTS)}, "texts must be .*, got dict"),
        ({"texts": (text for text in TEXTS)}, "texts must be .*, got generator"),
        ({"texts": [*TEXTS, None]}, r"texts\[64\] must be a text, got NoneType None"),
        ({"texts": [b"x"] * 10}, r"texts\[0\] must be a text, got bytes"),
        ({"seed": 1.5}, "seed must be a whole number, got float 1.5"),
        ({"seed": True}, "seed must be a whole number, got bool True"),
        ({"n_orders": 2.5}, "--n-orders must be a whole number or None, got float"),
        ({"limit": "5"}, "limit must be a whole number or None, got str '5'"),
        ({"min_effect": NAN}, "--min-effect must be a finite number, got float nan"),
        ({"shuffled": "no"}, "shuffled must be True or False, got str 'no'"),
        ({"effort": "quick"}, "unknown argument 'effort'"),
        ({"tests": 3}, "tests must be a text or None, got int 3"),
        ({"separator": None}, "separator must be a text, got NoneType None"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'bfloat16', got str 'int8'"),
        ({"limits": 5}, "unknown argument 'limits'"),
        ({"store": "gs://b/run"}, "--store gs://b/run: a store is a folder"),
        ({"store": Path("gs://b/run")}, "a store is a folder"),
    ],
)
def test_audit_names_an_argument_of_another_kind(arguments, message):
    arguments = {"texts": TEXTS} | arguments
    with pytest.raises(InputError, match=message):
        jc.audit(scorer, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_effect": NAN}, "min_effect must be a finite number"),
        ({"min_effect": -1.0}, "min-effect must be positive"),
        ({"scores": "rank"}, "scores must be 'centred' or 'studentised' or 'auto'"),
        ({"name": 3}, "name must be a text"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"matrices": 1}, "unknown argument of prove 'matrices'"),
    ],
)
def test_prove_names_an_argument_of_another_kind(arguments, message):
    with pytest.raises(InputError, match=message):
        jc.prove(MATRIX, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fprs": (2.0,)}, "--fpr must lie between 0 and 1, got 2"),
        ({"fprs": (NAN,)}, "--fpr must lie between 0 and 1, got nan"),
        ({"k": 0}, "--k must be above 0"),
        ({"k": NAN}, "k must be a finite number"),
        ({"scores": 3}, "scores must be a sequence, each a text, got int 3"),
        ({"members": 5}, "members must be a text or a path or a sequence"),
        ({"convention": "eq"}, "convention must be 'le' or 'lt', got str 'eq'"),
    ],
)
def test_membership_names_an_argument_of_another_kind(arguments, message):
    arguments = {"members": TEXTS[:9], "nonmembers": TEXTS[9:18]} | arguments
    with pytest.raises(InputError, match=message):
        jc.membership("no such model", **arguments)


def test_what_numpy_holds_passes_as_what_it_is():
    found = jc.audit(scorer, np.array(TEXTS), seed=np.int64(3), shuffled=np.True_)
    plain = jc.audit(scorer, TEXTS, seed=3, shuffled=True)
    assert found.p_value == plain.p_value
    assert found.report.seed == 3 and type(found.report.seed) is int


async def coroutine(pairs):
    return scorer(pairs)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (set, r"gives the set \{.* a list of \d+ numbers, in the order"),
        (dict.fromkeys, "gives the dict "),
        (lambda found: None, "gives the NoneType None"),
        (lambda found: 3.5, "gives the float 3.5"),
        (lambda found: [None] * len(found), "gives the NoneType None for '"),
        (lambda found: [str(one) for one in found], "gives the str '-"),
        (lambda found: np.array(found) + 2j, "gives the complex128 "),
        (lambda found: np.ma.masked_less(found, -20.0), "gives the MaskedConstant "),
        (lambda found: [-(10**400)] * len(found), "gives the int -1000"),
        (lambda found: [-(10**5000)] * len(found), "gives a int of very many digits"),
        (lambda found: np.stack([found, found], 1), "2 numbers for a continuation"),
        (lambda found: [-1e300] * len(found), "-1e.300 is no log-probability"),
        (lambda found: [1.0] * len(found), "1.0 is no log-probability"),
        (lambda found: [-7.0] * len(found), "same number whatever follows"),
        (lambda found: [-7.0], "1 answers to [0-9]+ requests"),
        (sorted, "the same pairs in another order have other log-probabilities"),
    ],
    ids=lambda value: getattr(value, "__name__", "message")[:9],
)
def test_a_function_that_answers_otherwise_is_one_line(answers, message):
    with pytest.raises(InputError) as found:
        jc.audit(lambda pairs: answers(scorer(pairs)), TEXTS)
    said = f"{found.value} {found.value.hint}"
    assert re.search(message, said) and "\n" not in said


def test_a_coroutine_is_one_line():
    with pytest.raises(InputError, match="gives a coroutine"):
        jc.audit(coroutine, TEXTS)


def test_every_public_function_has_the_boundary():
    """A function that is exported later is found here."""
    names = [name for name in dir(jc) if name[:1].islower() and name != "__dir__"]
    functions = [
        function
        for name in names
        if inspect.isfunction(function := getattr(jc, name))
        and not name.startswith("_")
    ]
    assert len(functions) >= 10
    for function in functions:
        with pytest.raises(InputError, match="unknown argument"):
            function(**{"no_such": 1})


@pytest.mark.parametrize(
    "answers",
    [
        lambda found: [decimal.Decimal(one) for one in found],
        lambda found: (np.float16(one) for one in found),
        lambda found: np.array(found)[:, None],
    ],
    ids=("decimals", "a generator", "a column"),
)
def test_numbers_of_other_kinds_are_numbers(answers):
    assert jc.audit(lambda pairs: answers(scorer(pairs)), TEXTS).p_value is not None


def test_a_text_is_no_sequence_of_its_letters():
    with pytest.raises(InputError, match=r"unknown score 'loss_'"):
        jc.membership(scorer, members=TEXTS[:9], nonmembers=TEXTS[9:18], scores="loss_")
    with pytest.raises(InputError, match="--compare must be a text or None, got int"):
        jc.replicate("m", "x.jsonl", compare=5)
