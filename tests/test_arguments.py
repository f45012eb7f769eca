"""Arguments of another kind than their annotations say are one line that names them."""

import decimal
import inspect
import random
import re

import numpy as np
import pytest

import jaxcontam as jc
from jaxcontam.arguments import in_python
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError

_RNG = random.Random(0)
_WORDS = ["".join(_RNG.choices("abcdefghijkl", k=5)) for _ in range(300)]
TEXTS = [" ".join(_RNG.choices(_WORDS, k=7)) for _ in range(64)]
MATRIX = np.random.default_rng(0).normal(size=(40, 10))
NAN = float("nan")


def scorer(pairs):
    return [-len(text) - len(set(context + text)) / 7 for context, text in pairs]


def audit(**arguments):
    return jc.audit(scorer, **{"texts": TEXTS} | arguments)


def prove(**arguments):
    return jc.prove(MATRIX, **arguments)


def membership(model="no such model", **arguments):
    sides = {"members": TEXTS[:9], "nonmembers": TEXTS[9:18]}
    return jc.membership(model, **sides | arguments)


def replicate(**arguments):
    return jc.replicate("m", "x.jsonl", **arguments)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (audit, {"texts": set(TEXTS)}, r"texts must be a text or a path .*, got set"),
        (audit, {"texts": iter(TEXTS)}, "texts must be .*, got list_iterator"),
        (audit, {"texts": [*TEXTS, None]}, r"texts\[64\] must be a text, got NoneType"),
        (audit, {"texts": [b"x"] * 10}, r"texts\[0\] must be a text, got bytes"),
        (audit, {"seed": True}, "seed must be a whole number, got bool True"),
        (audit, {"limit": 2.5}, "--limit must be a whole number or None"),
        (audit, {"min_effect": NAN}, "--min-effect must be a finite number, got float"),
        (audit, {"no_header": "no"}, "no-header must be True or False, got str 'no'"),
        (audit, {"order": 3}, "--order must be a sequence, each a text, got int 3"),
        (audit, {"efort": "quick"}, "unknown argument of audit 'efort'"),
        (audit, {"shuffled": True}, "no shuffled any more: order='random'"),
        (audit, {"batch_tokens": 9}, "no batch_tokens any more: a batch for which"),
        (audit, {"separator": None}, "separator must be a text, got NoneType None"),
        (audit, {"dtype": "int8"}, "dtype must be 'float32' or 'bfloat16', got str"),
        (audit, {"store": "gs://b/run"}, "--store gs://b/run: a store is a folder"),
        (prove, {"min_effect": NAN}, "min_effect must be a finite number"),
        (prove, {"min_effect": -1.0}, "min-effect must be positive"),
        (prove, {"statistic": "rank"}, "must be 'centred' or 'studentised' or 'auto'"),
        (prove, {"scores": "centred"}, "no scores any more: statistic=NAME"),
        (prove, {"seed": -1}, "seed must be at least 0"),
        (prove, {"matrices": 1}, "unknown argument of prove 'matrices'"),
        (membership, {"fpr": (2.0,)}, "--fpr must lie between 0 and 1, got 2"),
        (membership, {"k": 0}, "--k must be above 0"),
        (membership, {"scores": 3}, "scores must be a sequence, each a text, got int"),
        # A text is no sequence of its letters.
        (membership, {"model": scorer, "scores": "loss_"}, "unknown score 'loss_'"),
        (membership, {"members": 5}, "members must be a text or a path or a sequence"),
        (membership, {"convention": "eq"}, "convention must be 'le' or 'lt', got str"),
        (membership, {"limit": 5}, "no limit any more: sample=N"),
        (
            replicate,
            {"compare": 5},
            "--compare must be a sequence, each a text, got int",
        ),
    ],
)
def test_an_argument_of_another_kind_is_named(function, arguments, message):
    with pytest.raises(InputError, match=message):
        function(**arguments)


def test_what_numpy_holds_passes_as_what_it_is():
    found = jc.audit(scorer, np.array(TEXTS), seed=np.int64(3), limit=np.int64(60))
    plain = jc.audit(scorer, TEXTS, seed=3, limit=60)
    assert found.p_value == plain.p_value
    assert found.report.seed == 3 and type(found.report.seed) is int


async def coroutine(found):
    return found


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (set, r"gives the set \{.* a list of \d+ numbers, in the order"),
        (dict.fromkeys, "gives the dict "),
        (coroutine, "gives a coroutine"),
        (lambda found: None, "gives the NoneType None"),
        (lambda found: 3.5, "gives the float 3.5"),
        (lambda found: [None] * len(found), "gives the NoneType None for '"),
        (lambda found: [str(one) for one in found], "gives the str '-"),
        (lambda found: np.array(found) + 2j, "gives the complex128 "),
        (lambda found: np.ma.masked_less(found, -20.0), "gives the MaskedConstant "),
        (lambda found: [-(10**400)] * len(found), "gives the int -1000"),
        (lambda found: [-(10**5000)] * len(found), "gives a int of very many digits"),
        (lambda found: np.stack([found, found], 1), "2 numbers for a continuation"),
        (lambda found: [-1e300] * len(found), "-1e.300 is not a log-probability"),
        (lambda found: [1.0] * len(found), "1.0 is not a log-probability"),
        (lambda found: [-7.0] * len(found), "same number for every continuation"),
        (lambda found: [-7.0], "1 answers to [0-9]+ requests"),
        (sorted, "the same pairs in another order have different log-probabilities"),
    ],
    ids=lambda value: getattr(value, "__name__", "message")[:9],
)
def test_a_function_that_answers_otherwise_is_one_line(answers, message):
    with pytest.raises(InputError) as found:
        jc.audit(lambda pairs: answers(scorer(pairs)), TEXTS)
    said = f"{found.value} {found.value.hint}"
    assert re.search(message, said) and "\n" not in said


def test_hints_name_keywords_in_python_and_flags_in_lines_for_a_shell():
    with pytest.raises(InputError) as caught:
        audit(reference="older", tests="stratified")
    assert caught.value.hint == "--tests direction"
    assert caught.value.__notes__ == ["tests direction"]
    assert in_python("--store none, or --min-effect") == "store=None, or min_effect"
    line = "vllm serve --no-enable-prefix-caching"
    assert in_python(line) == line


def test_every_public_function_has_the_boundary():
    """A function that is exported later is found here."""
    names = [name for name in dir(jc) if name[:1].islower() and name != "__dir__"]
    found = (getattr(jc, name) for name in names)
    functions = [one for one in found if inspect.isfunction(one)]
    assert len(functions) >= 10
    for function in functions:
        said = r"unknown argument.*\n(did you|choices: )"
        with pytest.raises(InputError, match=said):
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


def test_help_of_the_command_changes_nothing_in_python(capsys):
    main(["audit", "--help"])
    with pytest.raises(InputError, match="--order must be a sequence"):
        audit(order=3)
