"""Rates of documents by a cut from known ones, and folders that are cut to snippets."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.known_texts import load_snippets, random_snippets, read_texts
from jaxcontam.members.rates import document_rates
from jaxcontam.stats.proportions import wilson_interval
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import MEMBERS, OTHERS, save_overfitted
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised

LONG = " ".join(f"w{i}" for i in range(300))
ROLES = ("member", "member", "nonmember", "nonmember", "text")
SCORES = np.array([5.0, 6, 7, 8, 1, 2, 3, 5.5, 9, np.nan])


def rates_of(scores, documents=("m1", "m2", "n1", "n2", "asked"), roles=ROLES, n=2):
    """Two texts of each document, unless `n` says how many."""
    role_N = np.repeat(roles, n)
    found = document_rates(
        "s",
        np.array(scores, float),
        np.repeat(documents, n).tolist(),
        role_N.tolist(),
        known_N=role_N != "text",
        asked_N=role_N == "text",
    )
    return found, {row.document: row for row in found.rates}


def test_rates_by_hand():
    """5.75 misses the 5 alone, and 4 takes in the 5.5 alone: the higher cut is kept."""
    found, rates = rates_of(SCORES)
    assert found.threshold == 5.75
    assert found.accuracy == (3 / 4 + 1) / 2
    assert (found.n_members, found.n_nonmembers) == (2, 2)
    # m1 is judged by 7, 8 against the others: 6.25. m2 by 5, 6: 4 takes in 5.5 and
    # finds both. n1 by 3, 5.5: 5.75, as with all. n2 by 1, 2: (2 + 5) / 2.
    assert found.tpr_held_out == 2 / 4
    assert found.fpr_held_out == 1 / 4
    assert found.accuracy_held_out == (2 / 4 + 3 / 4) / 2
    known = [rates[name] for name in ("m1", "m2", "n1", "n2")]
    assert [row.threshold for row in known] == [6.25, 4.0, 5.75, 3.5]
    assert [row.rate for row in known] == [0.0, 1.0, 0.0, 0.5]
    asked = rates["asked"]
    assert (asked.n_texts, asked.n_scored, asked.n_above) == (2, 1, 1)
    assert (asked.rate_low, asked.rate_high) == wilson_interval(1, 1)
    assert asked.threshold == found.threshold


def test_a_document_without_a_score_stays_in_the_table():
    _, rates = rates_of([*SCORES[:8], np.nan, np.nan])
    asked = rates["asked"]
    assert (asked.n_texts, asked.n_scored, asked.n_above, asked.rate) == (
        *(2, 0),
        *(None, None),
    )


def test_held_out_accuracy_of_noise_is_not_above_chance():
    """The cut's own accuracy is above 0.5 on pure noise; the held-out one is not."""
    own, held_out = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        # Texts of a document resemble each other.
        values = np.repeat(rng.normal(size=12), 5) + rng.normal(size=60)
        roles = ("member",) * 6 + ("nonmember",) * 6
        found, _ = rates_of(values, list("abcdefghijkl"), roles, 5)
        own.append(found.accuracy)
        held_out.append(found.accuracy_held_out)
    # Four standard errors of the mean of 40 runs.
    assert np.mean(own) - 4 * np.std(own) / 40**0.5 > 0.5
    assert np.mean(held_out) < 0.5 + 4 * np.std(held_out) / 40**0.5


def test_a_folder_is_snippets_of_its_text_files(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.TXT", "sub/a.txt"):
        (tmp_path / name).write_text(f"\ufeff{name} {LONG}")
    for name in (".hidden.txt", "notes.md"):
        (tmp_path / name).write_text(LONG)
    (tmp_path / "short.txt").write_text("x y")
    (tmp_path / "empty.txt").write_text(" \n")
    found = load_snippets(tmp_path, n_snippets=4, n_words=20, seed=5)
    assert found.clusters == ("b",) * 4 + ("short",) + ("sub/a",) * 4
    assert found.texts[:4] == random_snippets(
        f"b.TXT {LONG}", n_snippets=4, n_words=20, seed=5
    )
    assert found.left_out == (
        "1 of 4 files without words",
        "1 of 4 files too short for 4 snippets",
    )
    assert (found.texts[4], found.n_short) == ("x y", 1)


def test_a_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no \.txt file with words"):
        load_snippets(tmp_path)


def test_documents_of_three_files_keep_their_names_unless_they_share_one(tmp_path):
    paths = []
    for name in ("asked", "seen", "new"):
        rows = [{"text": f"{name} {i}", "title": f"{name}{i // 2}"} for i in range(4)]
        paths.append(write_lines(tmp_path / f"{name}.jsonl", rows))
    texts, members, nonmembers = paths
    flags = {"text_field": "text", "document_field": "title"}
    known = {"members": members, "nonmembers": nonmembers, **flags}
    run = read_texts(MembershipDesign(texts=texts, **known))
    assert run.roles == ("text",) * 4 + ("member",) * 4 + ("nonmember",) * 4
    assert run.clusters[::4] == ("asked0", "seen0", "new0")
    again = read_texts(MembershipDesign(texts=members, **known))
    assert again.clusters[::4] == ("0/seen0", "1/seen0", "2/new0")
    assert "2 names of documents stand in more than one file" in again.warnings[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A tiny model that knows some books of two pieces by heart, and all the books."""
    folder = tmp_path_factory.mktemp("library")
    save_overfitted(folder / "model")
    asked = []
    for kind, texts in (("seen", MEMBERS), ("new", OTHERS)):
        rows = [
            {"title": f"{kind}{i // 2:02}", "text": text}
            for i, text in enumerate(texts)
        ]
        write_lines(folder / f"{kind}.jsonl", rows[:20])
        asked += rows[20:]
    asked[-1]["title"] = asked[-2]["title"] = "<b>new"
    write_lines(folder / "asked.jsonl", asked)
    return folder


@pytest.fixture(scope="module")
def finished(library, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "of [red] and [/b]"
    words = ["membership", str(library / "model"), str(library / "asked.jsonl")]
    words += ["--members", str(library / "seen.jsonl")]
    words += ["--nonmembers", str(library / "new.jsonl")]
    words += ["--text-field", "text", "--document-field", "title", "--out", str(out)]
    assert main(words) == 0
    return out


def test_seen_books_have_high_rates_and_new_ones_low(finished):
    """Nothing but training tells the books apart, and no baseline does."""
    document = json.loads((finished / "report.json").read_text())
    found = document["study"]["documents"]
    rates = {row["document"]: row for row in found["rates"]}
    asked = {name: row["rate"] for name, row in rates.items() if row["role"] == "text"}
    assert asked == {"seen10": 1.0, "seen11": 1.0, "new10": 0.0, "<b>new": 0.0}
    assert (found["n_members"], found["n_nonmembers"]) == (10, 10)
    assert found["accuracy"] == found["accuracy_held_out"] == 1.0
    for row in rates.values():
        assert row["n_texts"] == row["n_scored"] == 2
        assert (row["rate_low"], row["rate_high"]) == wilson_interval(row["n_above"], 2)
    (primary,) = (row for row in document["results"] if row["primary"])
    assert (primary["method"], primary["n_clusters"]) == ("min_k", 20)
    assert (primary["auc"], primary["verdict"]) == (1.0, "may rank higher")
    # Books of both kinds were drawn from one law: no text can tell them apart.
    blind = {row["name"]: round(row["auc"], 3) for row in document["blind"]}
    assert blind == {
        "bag_of_words": 0.39,
        "length": 0.59,
        "numbers": 0.5,
        "ngram": 0.487,
        "fluency": 0.428,
    }


def test_the_page_rates_books_and_escapes_them(finished):
    page = (finished / "report.html").read_text()
    assert "&lt;b&gt;new" in page
    assert "<b>new" not in page
    assert "a seen one shows a rate of 100% on average and an unseen one 0%" in page
    check_page(page)


def test_verify_rates_the_books_again(finished, tmp_path, capsys):
    assert main(["verify", str(finished)]) == 0
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    text = (copy / "report.json").read_text()
    changed = text.replace('"fpr_held_out": 0.0', '"fpr_held_out": 0.25')
    (copy / "report.json").write_text(changed)
    capsys.readouterr()
    assert main(["verify", str(copy)]) == 3
    assert "study.documents.fpr_held_out is 0.25" in capsys.readouterr().out
