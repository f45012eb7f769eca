"""Combined tests: two tests of one order in a single p-value."""

import dataclasses
import json

import pytest

from jaxcontam.cli import main
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.methods.two_min import METHOD, combined_numbers
from jaxcontam.report.report_files import sealed_text
from jaxcontam.results import OrderNumbers

pytestmark = pytest.mark.unoptimised

FIRST = OrderNumbers(
    statistic=1.0,
    p_value=1e-4,
    log10_p=-4.0,
    p_lower=0.9e-4,
    p_monte_carlo=2e-4,
    p_floor=1e-20,
    e_value=30.0,
    effect=0.4,
    effect_se=0.1,
    mde=0.39,
    scores="double-centred",
)
SECOND = dataclasses.replace(FIRST, p_value=0.3, log10_p=-0.523, p_lower=0.29, mde=0.2)


@pytest.fixture(scope="module")
def combined(pulse, tmp_path_factory):
    out = tmp_path_factory.mktemp("combined")
    files = [str(pulse / f"sets/pydocs-{name}.txt") for name in ("0a", "50")]
    words = ["audit", str(pulse / "model"), *files, "--shuffled"]
    words += ["--tests", "two_min"]
    assert main([*words, "--out", str(out)]) == 0
    return out


def test_smaller_pvalue_counts_twice_and_never_exceeds_one():
    both = combined_numbers([FIRST, SECOND])
    assert both.p_value == pytest.approx(2e-4)
    assert both.p_lower == pytest.approx(1.8e-4)
    assert both.p_floor == pytest.approx(2e-20)
    assert both.e_value == 30.0
    assert both.effect == FIRST.effect
    # Half the level: (3.291 + 0.842) in place of (3.090 + 0.842) standard errors.
    assert both.mde == pytest.approx(FIRST.mde * 4.133 / 3.932)
    # A part whose floor lies above half the level finds nothing.
    shallow = dataclasses.replace(FIRST, p_floor=6e-4)
    assert combined_numbers([shallow, SECOND]).mde == pytest.approx(0.2 * 4.133 / 3.932)
    assert combined_numbers([shallow, shallow]).mde is None
    assert combined_numbers([SECOND, FIRST]).p_value == both.p_value
    sure = dataclasses.replace(FIRST, p_value=0.8, log10_p=-0.0969)
    assert combined_numbers([sure, sure]).p_value == 1.0


def test_combination_decides_and_its_parts_stand_beside_it(combined):
    rows = json.loads((combined / "report.json").read_text())["results"]
    for name in ("pydocs-0a", "pydocs-50"):
        found = {row["method"]: row for row in rows if row["benchmark"] == name}
        assert set(found) == {"two_min", "adjacency", "stratified", "direction"}
        assert [m for m, row in found.items() if row["primary"]] == ["two_min"]
        both, pairs = found["two_min"], found["adjacency"]
        smaller = min(pairs["p_value"], found["stratified"]["p_value"])
        assert both["p_value"] == pytest.approx(min(1.0, 2 * smaller))
        assert both["verdict"] is not None and pairs["verdict"] is None
        assert both["tokens_scored"] == 0 < pairs["tokens_scored"]
        # Strata of up to 12 in place of 8, of which 100,000 orders are drawn.
        assert pairs["n_strata"] == 3 and pairs["n_orders"] == 99_999
        # Read from the same pairs.
        assert found["direction"]["tokens_scored"] == 0
        assert found["direction"]["n_strata"] == 3


def test_combined_report_is_verified_and_a_change_is_found(combined, tmp_path):
    assert verify_report(combined) == ([], 8)
    document = json.loads((combined / "report.json").read_text())
    row = next(r for r in document["results"] if r["method"] == METHOD.name)
    row["log10_p"] -= 0.5
    for name in ("report.json", "orders.npz"):
        (tmp_path / name).write_bytes((combined / name).read_bytes())
    (tmp_path / "report.json").write_text(sealed_text(document))
    assert any("two_min): log10_p is" in fault for fault in verify_report(tmp_path)[0])


def test_page_of_a_combination_shows_the_scores_of_its_first_part(combined):
    page = (combined / "report.html").read_text()
    assert "the smaller p-value of adjacency and stratified, doubled" in page
    assert "stratum, in the order of the file" in page
