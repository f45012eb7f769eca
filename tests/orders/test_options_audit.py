"""Orders of answer options in an audit: what users see."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from tests.support.random_items import HOUSE, random_items

pytestmark = pytest.mark.unoptimised


def write_items(path, rng, *, n=60, place=None):
    rows = []
    for i, item in enumerate(random_items(rng, n=n, sizes=(4, 5))):
        answer = int(rng.integers(len(item))) if place is None else place
        rows.append({"question": f"Which {i}?", "choices": item, "answer": answer})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def audit(pulse, tmp_path, capsys):
    """Audit a file with `--tests options`; returns the rows and what was printed."""

    def run(path, *flags):
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        words = ["audit", str(pulse / "model"), str(path), "--out", str(out)]
        assert main([*words, *flags]) == 0
        said = " ".join(capsys.readouterr().out.split())
        return json.loads((out / "report.json").read_text())["results"], said, out

    return run


def test_audit_tests_options_beside_the_order_of_the_file(audit, tmp_path):
    path = write_items(tmp_path / "mc.jsonl", np.random.default_rng(0))
    (row, other), said, out = audit(path, "--tests", "options,reversal")
    assert (row["method"], row["primary"], row["n_orders"]) == ("options", True, 3)
    assert (row["null"], row["validity"]) == ("exchangeability of options", "exact")
    assert row["n_strata"] + row["n_dropped"] == row["n_examples"] == 60
    assert [t["name"] for t in row["pretests"]] == [
        "option_length",
        "option_alphabet",
        "answer_place",
    ]
    assert row["effect_unit"] == "nats per item"
    assert f"{row['n_dropped']} of 60 items were left out" in said
    assert other["method"] == "reversal"
    assert main(["verify", str(out)]) == 0


def test_house_order_of_one_set_is_one_item_and_no_evidence(audit, tmp_path):
    path = tmp_path / "house.jsonl"
    rows = [{"q": f"Which {i}?", "choices": HOUSE, "answer": i % 4} for i in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,), said, out = audit(path, "--tests", "options")
    assert (row["n_strata"], row["n_dropped"]) == (1, 199)
    assert row["p_value"] >= 0.25, "one of four orders"
    assert row["verdict"] != "contaminated"
    assert "199 of 200 items were left out: 199 share two options with" in said
    assert main(["verify", str(out)]) == 0


def test_right_options_in_one_place_ask_for_fix_answer(audit, tmp_path):
    path = write_items(tmp_path / "mc.jsonl", np.random.default_rng(0), place=1)
    (row,), said, _ = audit(path, "--tests", "options")
    assert row["verdict"] == "invalid design"
    assert "--fix-answer" in said
    (row,), said, out = audit(path, "--tests", "options", "--fix-answer")
    assert row["verdict"] != "invalid design"
    assert row["null"] == "exchangeability of wrong options"
    with np.load(out / "orders.npz") as archive:
        orders_KMS = archive["0/orders"]
    assert set(orders_KMS[..., 1].ravel()) <= {1, -1}


def test_report_does_not_depend_on_where_the_published_order_stood(audit, tmp_path):
    path = write_items(tmp_path / "mc.jsonl", np.random.default_rng(0), n=30)
    scores, places = [], []
    for seed in ("1", "2"):
        _, _, out = audit(
            path, "--tests", "options", "--n-orders", "200", "--seed", seed
        )
        with np.load(out / "orders.npz") as archive:
            scores.append(archive["0/scores"])
            places.append(archive["0/place"])
    assert not np.array_equal(*places)
    np.testing.assert_array_equal(scores[0][:, 0], scores[1][:, 0])
