"""`eval.options`: items planted in shuffled order."""

import json

import pytest

from eval.options import Options
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.data.manifest import read_manifest

# A study of its own, half a minute long.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("options")
    return Options(out=out, tiny=True).run(), out


def test_every_set_is_tested_by_its_options_and_by_its_order(finished):
    document, out = finished
    found = {(row["benchmark"], row["method"]) for row in document["results"]}
    names = [f"items-{copies}" for copies in (0, 1, 2, 4, 10, 30)]
    tests = ("options", "adjacency", "direction")
    assert found == {(name, test) for name in names for test in tests}
    assert verify_report(out / "audit")[0] == []


def test_copies_were_planted_in_orders_of_their_own(finished):
    _, out = finished
    manifest = read_manifest(out / "manifest.json")
    assert [row.copies for row in manifest.sets] == [0, 1, 2, 4, 10, 30]
    assert all(row.shuffled for row in manifest.sets)


def test_items_have_four_different_options_and_an_answer(finished):
    _, out = finished
    for line in (out / "items-30.jsonl").read_text().splitlines():
        item = json.loads(line)
        assert len(set(item["choices"])) == 4
        assert 0 <= item["answer"] < 4
