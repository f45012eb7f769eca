"""A taste for the order of options is no memory: who vouches, what a reference says."""

import dataclasses
import hashlib
import itertools
import json
import re

import numpy as np
import pytest

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.verify import ask_again
from jaxcontam.reports.kinds import Asked
from jaxcontam.stats.randomisation import row_spread
from tests.orders.test_reference_model import CLEAR, forged
from tests.support.random_items import random_items
from tests.support.verified import verified

pytestmark = pytest.mark.unoptimised

_SCALES = (
    "whisper murmur shout scream",
    "ember flame blaze inferno",
    "cellar kitchen attic roof",
    "drizzle shower downpour deluge",
    "pawn bishop rook queen",
)
_RANK = {word: i for scale in _SCALES for i, word in enumerate(scale.split())}


def _rank(option):
    return _RANK[option.split()[0]]


def items_file(path, *, liked=0.5, n=60):
    """Items, a share of them on a scale that goes up, others in random order."""
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        steps = rng.permutation(rng.choice(_SCALES).split())
        options = [f"{step} {i}" for step in steps]
        if rng.random() < liked:
            options.sort(key=_rank)
        rows.append({"question": f"Which is case {i}?", "options": options})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def reader(seed=1, gain=3.0, remembers=None):
    """Gives log-likelihoods: own noise, a taste for scales that go up, memory."""
    seen = set()
    if remembers is not None:
        lines = map(json.loads, remembers.read_text().splitlines())
        seen = {tuple(row["options"]) for row in lines}

    def log_likelihoods(pairs):
        return [_log_likelihood(context + text) for context, text in pairs]

    def _log_likelihood(text):
        options = re.findall(r'"(.*?)"', text.rpartition('"options": [')[2])[:4]
        digest = hashlib.blake2b(f"{seed} {text}".encode(), digest_size=4).digest()
        noise = int.from_bytes(digest, "big") / 2**32
        ups = sum(_rank(a) < _rank(b) for a, b in itertools.pairwise(options))
        return -len(text) + noise + gain * ups + 2.0 * (tuple(options) in seen)

    return log_likelihoods


def audited(model, file, **design):
    return jaxcontam.audit(model, file, **{"tests": "options"} | design)


def test_a_taste_for_the_order_of_options_is_never_called_contaminated(tmp_path):
    """Not without a reference, nor beside one of the same taste and other noise."""
    file = items_file(tmp_path / "x.jsonl")
    found = audited(reader(), file)
    assert found.p_value <= 0.001
    assert (found.verdict, found.primary.reasons) == ("suspected", ("no reference",))
    beside = audited(reader(), file, reference=reader(seed=2))
    assert beside.verdict == "invalid design"
    # Of weaker tastes a reference finds less.
    weak = audited(reader(gain=0.25), file, reference=reader(seed=2, gain=0.25))
    assert weak.verdict != "contaminated"


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A file of items, and a model that read it and likes scales to go up, too."""
    file = items_file(tmp_path_factory.mktemp("items") / "x.jsonl", liked=0.0)
    return file, reader(remembers=file), reader(seed=2)


@pytest.fixture(scope="module")
def beside(read, tmp_path_factory):
    """The audit of that model beside a silent reference, and its report."""
    file, model, silent = read
    found = audited(model, file, reference=silent)
    out = tmp_path_factory.mktemp("beside")
    found.save(out)
    return found, out


def test_memory_of_options_is_proven_beside_a_silent_reference(beside):
    found, out = beside
    assert found.verdict == "contaminated"
    reference, effect = found.primary.reference, found.primary.effect
    assert reference.p_value > 0.05 and reference.difference_p <= 1e-6
    # What the model prefers, less what the reference does.
    difference = effect - reference.scale * reference.effect
    assert reference.difference == pytest.approx(difference)
    assert verified(out) == ([], 1)


def test_checks_of_options_are_made_again(read, beside, tmp_path):
    asked, (found, out) = Asked(benchmarks=(read[0],)), beside
    assert ask_again(out, asked) == ([], ["pre-tests were run again"])
    checks = [dataclasses.asdict(one) for one in found.primary.pretests]
    checks[0]["p_value"] = 0.999
    forged(out, tmp_path / "out", {"pretests": checks})
    (fault,), _ = ask_again(tmp_path / "out", asked)
    assert fault.startswith("x: pre-tests[0].p_value is 0.999, recomputed")


@pytest.mark.parametrize(
    ("tests", "provenances"),
    [
        ("options", {"options": "declared"}),
        ("options,reversal", {"options": "declared", "reversal": "published"}),
        ("reversal,options", {"options": "published", "reversal": "declared"}),
    ],
)
def test_users_word_is_of_the_order_that_decides(tests, provenances, read, tmp_path):
    file, model, _ = read
    found = audited(model, file, tests=tests, order=("random", "anyway"))
    assert {r.method: r.order_provenance for r in found.results} == provenances
    found.save(tmp_path)
    assert verified(tmp_path) == ([], len(provenances))
    if tests == "options":
        assert found.verdict == "contaminated"
        assert "declared shuffled by whoever ran this" in " ".join(repr(found).split())


def test_options_of_a_task_that_code_made_are_of_unknown_order(read):
    file, model, _ = read
    rows = tuple(map(json.loads, file.read_text().splitlines()))
    task = Benchmark(
        "task", tuple(map(json.dumps, rows)), rows, order_provenance="unknown"
    )
    row = jaxcontam.audit(model, task, tests="options").primary
    assert row.order_provenance == "unknown"
    # A seed file tells of the order of a file.
    seed = {"order": ("random", str(file))}
    AuditDesign(tests="options", **seed)
    with pytest.raises(InputError, match="exclude each other"):
        AuditDesign(tests="reversal,options", **seed)


@pytest.mark.parametrize(
    ("row", "scores", "fault"),
    [
        (CLEAR, None, "reference.p_value is 0.7, recomputed"),
        ({}, lambda _: None, "no scores of a reference model"),
        ({}, lambda scores: scores * 0.0, "reference.p_value is"),
        ({}, lambda scores: scores[:, :-1], "the reference was asked for other scores"),
    ],
)
def test_forged_reference_is_found(beside, tmp_path, row, scores, fault):
    assert fault in forged(beside[1], tmp_path / "out", row, scores, kind="scores")


def test_row_spread_by_hand():
    rows = [np.array([1.0, 3.0]), np.array([0.0, 0.0, 6.0])]
    # Distances from 2: 1, 1; from 2: 2, 2, 4.
    assert row_spread(rows) == pytest.approx(10 / 5)
    # Sums of float32 that differ by rounding alone.
    assert row_spread([np.array([-60.0, -60.00001])]) == 0.0


def test_right_options_in_one_place_ask_for_fix_answer(pulse, tmp_path, capsys):
    path, rows = tmp_path / "mc.jsonl", []
    items = random_items(np.random.default_rng(0), n=60, sizes=(4, 5))
    for i, item in enumerate(items):
        rows.append({"question": f"Which {i}?", "choices": item, "answer": 1})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def audit(*flags):
        out = tmp_path / flags[-1]
        words = ["audit", str(pulse / "model"), str(path), "--out", str(out)]
        words.append("--explain")
        assert main([*words, "--tests", *flags]) == 0
        said = " ".join(capsys.readouterr().out.split())
        found = json.loads((out / "report.json").read_text())["results"]
        assert main(["verify", str(out)]) == 0
        return *found, said

    row, other, said = audit("options,reversal")
    assert (row["method"], row["primary"], row["n_orders"]) == ("options", True, 3)
    assert (row["null"], row["validity"]) == ("exchangeability of options", "exact")
    assert row["n_strata"] + row["n_dropped"] == row["n_examples"] == 60
    assert row["effect_unit"] == "nats per item"
    assert f"{row['n_dropped']} of 60 items were left out" in said
    assert row["verdict"] == "invalid design"
    assert "--tests options:fixed,reversal" in said
    assert other["method"] == "reversal"
    row, said = audit("options:fixed")
    assert row["verdict"] != "invalid design"
    assert row["null"] == "exchangeability of wrong options"
    with np.load(tmp_path / "options:fixed/orders.npz") as archive:
        orders_KMS = archive["0/orders"]
    assert set(orders_KMS[..., 1].ravel()) <= {1, -1}
