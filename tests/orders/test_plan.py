"""`jaxcontam plan`: what a user types and reads."""

import json

import pytest

from jaxcontam.cli.main import main
from jaxcontam.orders.power_designs import PLANNED

pytestmark = pytest.mark.unoptimised


def planned(capsys, *words):
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plan_from_an_effect_states_examples_power_and_hours(capsys):
    words = ["--effect", "0.5", "--sd", "2", "--tokens-per-second", "1000"]
    found = planned(capsys, *words, "--examples", "400")
    assert [test["method"] for test in found["tests"]] == list(PLANNED)
    tests = {test["method"]: test for test in found["tests"]}
    stratified = tests["stratified"]
    assert stratified["examples_needed"] < 400
    assert stratified["power"] >= 0.8
    assert stratified["mde"] <= 0.5
    # One boundary in ten with ten times the effect is harder to find.
    assert 0.3 < stratified["power_one_in_ten"] < stratified["power"] - 0.02
    # 400 examples of 64 tokens in 10 orders, at 1,000 tokens a second.
    assert stratified["tokens"] == 256_000
    assert stratified["device_hours"] == pytest.approx(256 / 3600)
    # 64 tokens of an example: 2.5 times, and after each of the 7 others of its stratum.
    assert tests["direction"]["tokens"] == 64_000
    assert tests["adjacency"]["tokens"] == 179_200
    permutation = tests["permutation"]
    assert (permutation["power"], permutation["mde"]) == (0.0, None)
    assert main(["plan", *words]) == 0
    assert "A plan, not a promise" in capsys.readouterr().out


def test_plan_from_a_pilot_repeats_its_standard_error(pulse, tmp_path, capsys):
    benchmark = str(pulse / "sets/pydocs-1.txt")
    tests, out = ["--tests", "stratified,reversal"], str(tmp_path)
    audit = ["audit", str(pulse / "model"), benchmark, *tests, "--out", out]
    assert main(audit) == 0
    capsys.readouterr()
    document = json.loads((tmp_path / "report.json").read_text())
    rows = {row["method"]: row for row in document["results"]}
    row, words = rows["stratified"], ["--pilot", str(tmp_path), "--effect", "1"]
    found = planned(capsys, *words, "--tests", "stratified,reversal")
    (plan, reversal) = found["tests"]
    assert plan["n_examples"] == row["n_examples"]
    assert plan["n_strata"] == row["n_strata"]
    # Two different orders a stratum: nothing is scored once for two of them.
    scored = rows["reversal"]
    assert reversal["tokens"] == scored["tokens_scored"] + scored["cached_tokens"]
    # The plan's MDE adds to 3.93 standard errors what the effect does to the law.
    assert row["mde"] <= plan["mde"] <= 1.2 * row["mde"]
    assert found["tokens_per_second"] > 0


def test_test_that_the_pilot_lacks_borrows_the_spread_of_whole_orders(capsys, pulse):
    words = ["--pilot", str(pulse), "--pilot-benchmark", "pydocs-1", "--effect", "1"]
    sd = planned(capsys, *words, "--tests", "permutation,reversal,stratified")["sd"]
    assert sd["permutation"] in (sd["stratified"], sd["reversal"])
    assert main(["plan", *words, "--tests", "permutation"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not in the pilot, planned with the spread of" in said
