"""`overlap infini-gram:INDEX` against a server of the shapes of its API.

Shapes: docs/source/api.rst of liujch1998/infini-gram (`find`, `get_doc_by_rank`), and
api/api_server.py there (one of `query` and `query_ids`, no other field, errors).
"""

import json

import pytest

from jaxcontam.cli.main import main
from jaxcontam.overlap import index_search
from tests.support.api_server import serving
from tests.support.overlap_texts import sentence

FIELDS = {"index", "query_type", "query"}


class Index:
    """Counts a query in its documents, and shows the document of a rank."""

    def __init__(self, *documents):
        self.documents = documents
        self.faults = []

    def __call__(self, body, number, handler):
        if self.faults:
            return self.faults.pop(0)
        kind, query = body["query_type"], body["query"]
        if body["index"] != "v4_tiny":
            return 400, {"error": f"[Flask] Invalid index: {body['index']}"}
        more = {"s", "rank", "max_disp_len"} if kind == "get_doc_by_rank" else set()
        if body.keys() != FIELDS | more:
            return 500, {"error": "[Flask] Internal server error"}
        ranks = [d for d in self.documents for _ in range(d.count(query))]
        if kind == "find":
            places = [[7, 7], [3, 3 + len(ranks)]]
            return 200, {"cnt": len(ranks), "segment_by_shard": places}
        assert body["s"] == 1
        before, _, after = ranks[body["rank"] - 3].partition(query)
        spans = [[before, None], [query, "0"], [after, None]]
        return 200, {"doc_ix": 0, "spans": spans}


def searched(url, *flags, index="v4_tiny"):
    corpus = f"infini-gram:{url}#{index}"
    return main(["overlap", corpus, "bench.txt", "--out", "o", *flags])


def result():
    with open("o/overlap.json") as file:
        return json.load(file)


@pytest.fixture(autouse=True)
def benchmark(tmp_path, monkeypatch):
    """Planted, clean, and too short to be asked for."""
    monkeypatch.chdir(tmp_path)
    lines = [sentence(40), sentence(40, 500), "Yes or no?"]
    (tmp_path / "bench.txt").write_text("\n".join(lines) + "\n")


def test_planted_example_is_found_with_its_context_and_a_clean_one_is_not(capsys):
    # 25 of its words, at a place that no run begins at.
    index = Index(f"Before it {sentence(25, 7)} and after it.", "Another page.")
    with serving(index) as (url, requests):
        assert searched(url) == 0
        first = capsys.readouterr().out
        assert {path for path, *_ in requests} == {"/v1/"}
        n_asked = len(requests)
        assert searched(url) == 0
        assert len(requests) == n_asked, "answers are kept"
    row, clean, short = result()["examples"]
    assert (row["rule"], row["matched_documents"]) == ("13-gram", 1)
    assert row["matched"] == sentence(13, 13)
    assert row["example"].startswith("w0 w1 ")
    assert f"    example: {row['example']}\n    corpus:  {row['corpus']}\n" in first
    assert f"w12 [{sentence(13, 13)}] w26" in row["corpus"]
    assert (clean["rule"], short["rule"]) == (None, None)
    assert result()["totals"]["found"] == 1
    assert result()["corpus"]["n_unasked"] == 1
    with open("o/found.txt") as file:
        assert file.read() == "0\n"


def test_what_needs_more_requests_than_the_budget_sends_none(capsys):
    with serving(Index(sentence(40))) as (url, requests):
        assert searched(url, "--max-queries", "7") == 2
        assert not requests
        err = capsys.readouterr().err
        assert "v4_tiny: 8 requests, which is more than --max-queries 7\n" in err
        assert searched(url, "--max-queries", "8") == 0
    assert "--max-queries" not in result()["command"], "no result depends on it"


def test_busy_server_and_an_answer_without_a_count_are_asked_again():
    index = Index(sentence(40))
    index.faults = [(503, {"error": "busy"}, ("Retry-After", "0")), (200, {"cnt": 3})]
    with serving(index) as (url, _):
        assert searched(url) == 0
    assert result()["totals"]["found"] == 1


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([5], "no count of 'w"),
        ([[0.0, 1.0]], "no count of 'w"),
        ([[5, 0], [0, 6]], "no count of 'w"),
        ([[0, 1]], "no document with"),
    ],
)
def test_hostile_answers_are_one_line(capsys, places, message):
    def hostile(body, number, handler):
        found = {"cnt": 1, "segment_by_shard": places}
        return 200, found if body["query_type"] == "find" else {"spans": [5]}

    with serving(hostile) as (url, _):
        assert searched(url) == 2
        assert message in capsys.readouterr().err
    with serving(Index("w0")) as (url, _):
        assert searched(url, index="v5") == 2
    assert "Invalid index: v5" in capsys.readouterr().err


def test_operators_of_the_server_are_never_sent(tmp_path):
    words = sentence(12).split()
    lines = [" ".join([*words, "AND", *words, "OR"]), sentence(26, 900)]
    (tmp_path / "bench.txt").write_text("\n".join(lines))
    with serving(Index("w0", "w11")) as (url, requests):
        assert searched(url) == 0
    assert len(requests) == 2
    assert result()["totals"]["found"] == 0


def test_shared_and_common_words_are_boilerplate(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(index_search, "COMMON", 3)
    frame, licence = sentence(13, 700), sentence(13, 800)
    lines = [f"{frame} {sentence(13, 20 * i)}" for i in range(10)]
    (tmp_path / "bench.txt").write_text("\n".join([*lines, licence]))
    index = Index(*[frame] * 5, *[licence] * 3, sentence(13, 20))
    with serving(index) as (url, requests):
        assert searched(url) == 0
    assert frame not in {body["query"] for *_, body in requests}
    assert [r["id"] for r in result()["examples"] if r["rule"]] == [1, 10]
    totals = result()["totals"]
    assert (totals["found"], totals["boilerplate"]) == (1, 1)
    assert "1 have nothing there but boilerplate" in capsys.readouterr().out
