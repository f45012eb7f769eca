"""`jaxcontam books`: rates, reports and refusals as users see them."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from jaxcontam.analyses.book_rates import Shelf, book_warnings, judge_books, shelve
from jaxcontam.cli import main
from jaxcontam.data.book_files import (
    MEMBER,
    NONMEMBER,
    TESTED,
    load_books,
)
from jaxcontam.report.archive import read_text_rows, score_columns, typed_rows
from jaxcontam.results.membership import TextScores
from jaxcontam.stats.proportions import wilson_interval
from tests.labelled_rows import write_lines
from tests.membership_model import MEMBERS, OTHERS, save_overfitted
from tests.page_laws import check_page

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A tiny model that knows some books of two pieces by heart, and all the books."""
    folder = tmp_path_factory.mktemp("library")
    save_overfitted(folder / "model")
    for kind, texts in (("seen", MEMBERS), ("new", OTHERS)):
        rows = [
            {"title": f"{kind}{i // 2:02}", "text": text}
            for i, text in enumerate(texts)
        ]
        write_lines(folder / f"known_{kind}.jsonl", rows[:20])
        write_lines(folder / f"asked_{kind}.jsonl", rows[20:])
    return folder


def run_books(library, *flags, asked=("asked_seen.jsonl", "asked_new.jsonl")):
    return main(
        [
            *("books", str(library / "model")),
            *(str(library / name) for name in asked),
            *("--known-members", str(library / "known_seen.jsonl")),
            *("--known-nonmembers", str(library / "known_new.jsonl")),
            *("--words", "16"),
            *flags,
        ]
    )


@pytest.fixture(scope="module")
def finished(library, tmp_path_factory):
    # Brackets mean nothing to the terminal.
    out = tmp_path_factory.mktemp("books") / "of [red] and [/b]"
    assert run_books(library, "--out", str(out)) == 0
    return out


def test_seen_books_have_high_rates_and_new_ones_low(finished):
    document = json.loads((finished / "report.json").read_text())
    rates = {
        row["title"]: row
        for row in document["books"]
        if row["primary"] and row["role"] == "text"
    }
    assert {title: row["rate"] for title, row in rates.items()} == {
        **{"seen10": 1.0, "seen11": 1.0},
        **{"new10": 0.0, "new11": 0.0},
    }
    for row in rates.values():
        assert row["n_snippets"] == row["n_scored"] == 2
        assert (row["rate_low"], row["rate_high"]) == wilson_interval(row["n_above"], 2)


def test_each_score_has_an_auc_beside_blind_baselines(finished):
    document = json.loads((finished / "report.json").read_text())
    methods = [row["method"] for row in document["results"]]
    assert methods == ["min_k", "loss", "zlib", "min_k_pp"]
    assert [row["primary"] for row in document["results"]] == [
        True,
        False,
        False,
        False,
    ]
    assert document["results"][0]["n_clusters"] == 20
    assert document["results"][0]["auc"] > 0.9
    # Books of both kinds were drawn from one law: no text can tell them apart.
    assert len(document["blind"]) == 5
    assert all(row["auc_low"] < 0.6 for row in document["blind"])
    assert document["results"][0]["verdict"] == "may rank higher"


def test_every_snippet_has_a_row_from_which_rates_follow(finished):
    document = json.loads((finished / "report.json").read_text())
    rows = read_text_rows(finished)
    assert len(rows) == 48
    columns = score_columns(typed_rows(rows, TextScores))
    titles = list(dict.fromkeys(row["source"] for row in rows))
    roles = {row["source"]: row["role"] for row in rows}
    shelf = Shelf(
        titles=tuple(titles),
        roles=tuple(roles[title] for title in titles),
        book=np.array([row["cluster"] for row in rows]),
    )
    thresholds, rates = judge_books(
        shelf, list(columns), np.stack(list(columns.values()), 1), primary="min_k"
    )
    assert [dataclasses.asdict(row) for row in thresholds] == document[
        "book_thresholds"
    ]
    assert [dataclasses.asdict(row) for row in rates] == document["books"]


def test_verify_judges_the_books_again(finished, tmp_path, capsys):
    assert main(["verify", str(finished)]) == 0
    said = capsys.readouterr().out
    assert f"{finished}: verified, 24 books judged again" in said
    copy = tmp_path / "copy [/b]"
    shutil.copytree(finished, copy)
    lines = (copy / "texts.jsonl").read_text().splitlines()
    # A snippet of the last book that scores as a seen one does.
    row = json.loads(lines[-1])
    row["scores"] = json.loads(lines[0])["scores"]
    lines[-1] = json.dumps(row)
    (copy / "texts.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["verify", str(copy)]) == 3
    said = capsys.readouterr().out
    assert f"{copy}: NOT verified, " in said
    assert "texts.jsonl: its digest" in said
    assert "book_thresholds[0].fpr_held_out is 0.0" in said


def test_a_rerun_scores_nothing_anew_and_says_the_same(library, finished):
    before = json.loads((finished / "report.json").read_text())
    assert run_books(library, "--out", str(finished)) == 0
    after = json.loads((finished / "report.json").read_text())
    for name in ("results", "books", "book_thresholds", "blind"):
        assert before[name] == after[name]


def test_the_page_names_books_and_escapes_them(library, tmp_path, capsys):
    (tmp_path / "<b>bold.txt").write_text("Ba ceno dist for gun " * 8)
    flags = ("--scores", "loss", "--out", str(tmp_path / "out"), "--json")
    assert run_books(library, *flags, asked=[tmp_path / "<b>bold.txt"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in document["book_thresholds"]] == ["loss"]
    assert any("too short for 100 snippets" in w for w in document["book_warnings"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;b&gt;bold" in page
    assert "<b>bold" not in page
    assert "of 1 book in question has a contamination rate" in page
    assert "<code>jaxcontam verify DIR</code>" in page
    check_page(page)
    (tmp_path / "out" / "report.html").unlink()
    assert main(["report", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_a_book_that_is_also_known_is_named(library):
    books = [
        *load_books([library / "known_seen.jsonl"], MEMBER),
        *load_books([library / "known_new.jsonl"], NONMEMBER),
    ]
    copy = dataclasses.replace(books[0], title="copy", role=TESTED)
    shelf, texts = shelve([*books, copy], n_snippets=2, n_words=16, seed=0)
    assert len(texts) == len(shelf.book) == 42
    assert book_warnings([*books, copy], shelf, 2) == [
        "copy is also a known book: its rate is part of what the threshold was "
        "fitted on"
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "a threshold needs known books of both kinds"),
        (["--known-members", "a"], "a threshold needs known books of both kinds"),
        (["--known", "a", "--known-members", "b"], "--known excludes"),
        (["--known", "a", "--snippets", "0"], "--snippets must be at least 1, got 0"),
        (["--known", "a", "--words", "0"], "--words must be at least 1, got 0"),
        (["--known", "a", "--scores", "mink"], "unknown score 'mink'"),
        (["--known", "a", "--scores", "reference"], "unknown score 'reference'"),
        (["--known", "missing.jsonl"], "no such file"),
    ],
)
def test_bad_flags_are_refused_before_any_model_loads(tmp_path, capsys, flags, message):
    (tmp_path / "b.txt").write_text("a book")
    assert main(["books", "no-model", str(tmp_path / "b.txt"), *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
