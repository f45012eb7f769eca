"""`jaxcontam membership`: labels, pools, prefixes, documents, files, verification."""

import contextlib
import io
import json
import shutil
import types

import numpy as np
import pytest

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import MEMBER, NONMEMBER
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.masked import SpanModel
from jaxcontam.reports.archive import read_text_rows
from jaxcontam.stats.proportions import wilson_interval
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
)
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised

# What a page must not run.
HOSTILE = "<script>alert('x')</script>"
# What is asked beside a pool that holds one of the texts.
ASKED = [
    *MEMBERS[:17],
    *drawn_texts(2, seed=8),
    OTHERS[0],
    *MEMBERS[20:21] * 2,
    "",
    "a",
]


def run(*words):
    """What a finished `membership` prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["membership", *map(str, words)]) == 0
    return said.getvalue()


def read(out):
    return json.loads((out / "report.json").read_text())


def primary_of(document):
    (row,) = [row for row in document["results"] if row["primary"]]
    return row


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Members, other texts, both in one file with labels, and books of two texts."""
    folder = tmp_path_factory.mktemp("texts")
    rows, asked = [], []
    for side, name, texts in ((1, "seen", MEMBERS), (0, "unseen", OTHERS)):
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
        rows += [{"input": text, "label": side} for text in texts]
        books = [
            {"title": f"{name}{i // 2:02}", "text": t} for i, t in enumerate(texts)
        ]
        write_lines(folder / f"{name}-books.jsonl", books[:20])
        asked += books[20:]
    write_lines(folder / "both.jsonl", rows)
    asked[-1] = {"title": "<b>new", "text": HOSTILE}
    asked[-2]["title"] = "<b>new"
    write_lines(folder / "asked-books.jsonl", asked)
    write_lines(folder / "asked.jsonl", [{"input": text} for text in ASKED])
    return folder


@pytest.fixture(scope="module")
def labelled(model, files):
    """A finished run on the labelled file, with scores that take other texts before."""
    jaxcontam.membership(
        model,
        files / "both.jsonl",
        scores=("auto", "recall", "con_recall", "codec"),
        shots=2,
        sweep_k=True,
        fpr=(0.1,),
    ).save(files / "labelled")
    return files / "labelled"


@pytest.fixture(scope="module")
def referenced(model, files):
    """The labelled file again, beside a model that saw nothing."""
    other, out = files / "other", files / "referenced"
    save_checkpoint(fresh_decoder(3), fast_tokenizer(), other)
    words = (model, files / "both.jsonl", "--scores", "min_k", "--reference", other)
    assert "blind: the reference model" in run(*words, "--out", out)
    return out


@pytest.fixture(scope="module")
def questions(model, files):
    """Texts in question beside a pool."""
    out, words = files / "questions", (model, files / "asked.jsonl", "--fpr", "0.1")
    words = (*words, "--nonmembers", files / "unseen.txt")
    said = " ".join(run(*words, "--out", out).split())
    assert "1 distinct text is both among the texts in question" in said
    return out


@pytest.fixture(scope="module")
def books(model, files):
    """Books in question, beside known ones of both kinds."""
    out = files / "of [red] and [/b]"
    words = [model, files / "asked-books.jsonl", "--out", out]
    words += ["--members", files / "seen-books.jsonl"]
    words += ["--nonmembers", files / "unseen-books.jsonl"]
    run(*words, "--text", "text", "--fields", "document=title")
    return out


def test_members_that_the_model_knows_by_heart_rank_first(labelled):
    document = read(labelled)
    row = primary_of(document)
    assert row["method"] == "min_k" and row["auc"] > 0.9
    assert row["auc_low"] < row["auc"] <= row["auc_high"]
    # No model that saw neither side was asked.
    assert row["p_value"] <= 0.001 and row["verdict"] == "may rank higher"
    assert "at most `may rank higher`" in row["warnings"][-1]
    assert [row["name"] for row in document["blind"]] == [
        *("bag_of_words", "length", "numbers", "ngram", "fluency")
    ]
    assert all(row["increment"] is not None for row in document["results"])


def test_every_text_comes_out_and_those_of_a_prefix_are_not_compared(labelled):
    rows, document = read_text_rows(labelled), read(labelled)
    assert [row["id"] for row in rows] == list(range(48))
    assert [row["role"] for row in rows] == [MEMBER] * 24 + [NONMEMBER] * 24
    assert [row["text"] for row in rows] == [*MEMBERS, *OTHERS]
    held = [row for row in rows if row["left_out"]]
    assert sorted(row["role"] for row in held) == [MEMBER] * 2 + [NONMEMBER] * 2
    assert all(value is None for row in held for value in row["scores"].values())
    one = primary_of(document)
    assert (one["n_members"], one["n_nonmembers"]) == (22, 22)
    assert document["study"]["n_left_out"] == 4


def test_a_sweep_and_the_shares_of_codec_are_reported(labelled):
    study, page = read(labelled)["study"], (labelled / "report.html").read_text()
    sweep = study["sweep"]["held_out_aucs"]
    names = ["min_k_10", "min_k", "min_k_30", "min_k_40", "min_k_50"]
    assert list(sweep) == names
    assert sweep[study["sweep"]["chosen"]] == max(sweep.values())
    assert "Sweep over k" in page
    rows = [row for row in read_text_rows(labelled) if not row["left_out"]]
    for share, role in zip(study["codec"], (MEMBER, NONMEMBER), strict=True):
        scores = [row["scores"]["codec"] for row in rows if row["role"] == role]
        assert (share["role"], share["n_texts"]) == (role, 22)
        assert share["share"] == np.mean(np.array(scores) > 0)
    assert "lowers the confidence in" in page


@pytest.mark.parametrize(
    ("name", "field", "old", "new"),
    [
        ("labelled", "share", "1.0", "0.5"),
        ("referenced", "p_value", "0.0001", "0.5"),
        ("questions", "beyond_reference", "false", "true"),
        ("books", "fpr_held_out", "0.0", "0.25"),
    ],
)
def test_verify_judges_a_report_again_and_finds_what_was_changed(
    name, field, old, new, request, tmp_path, capsys
):
    out = request.getfixturevalue(name)
    assert main(["verify", str(out)]) == 0
    said, n = capsys.readouterr().out, len(read(out)["results"])
    assert f"{n} result{'s' * (n > 1)} recomputed" in said
    copy = shutil.copytree(out, tmp_path / "copy")
    text = (copy / "report.json").read_text()
    assert f'"{field}": {old}' in text
    text = text.replace(f'"{field}": {old}', f'"{field}": {new}', 1)
    (copy / "report.json").write_text(text)
    assert main(["verify", str(copy)]) == 3
    assert f".{field} is {new.capitalize()}, recomputed" in capsys.readouterr().out


def test_a_report_that_keeps_its_word_and_loses_the_reference_is_found_out(
    referenced, tmp_path, capsys
):
    out = shutil.copytree(referenced, tmp_path / "copy")
    rows = read_text_rows(out)
    assert all(len(row.pop("reference")) == 2 for row in rows)
    write_lines(out / "texts.jsonl", rows)
    assert main(["verify", str(out)]) == 3
    said = capsys.readouterr().out
    assert "its digest is not the one" in said
    assert "is 'members rank higher', recomputed 'may rank higher'" in said


def test_with_a_reference_that_saw_nothing_the_word_is_the_strongest(referenced):
    document = read(referenced)
    assert [row["name"] for row in document["blind"]][-1] == "reference"
    assert primary_of(document)["verdict"] == "members rank higher"
    assert "the reference model" in (referenced / "report.html").read_text()


def test_texts_in_question_get_a_p_value_each_or_a_reason(questions):
    rows, document = read_text_rows(questions), read(questions)
    assert [row["text"] for row in rows] == [*ASKED, *OTHERS]
    *tested, other, first, second, empty, short = rows[: len(ASKED)]
    # The smallest conformal p-value is 1 / (pool + 1).
    assert min(row["p_value"] for row in tested) == pytest.approx(1 / 24, abs=1e-12)
    assert all(row["no_p_value"] is None for row in tested)
    rest = [other, first, second, empty]
    assert [(row["p_value"], row["p_adjusted"]) for row in rest] == [(None, None)] * 4
    assert [row["no_p_value"] for row in rest] == [
        "is among the non-members",
        *["occurs more than once"] * 2,
        "has no score",
    ]
    assert all(row["p_value"] is None for row in rows if row["role"] == NONMEMBER)
    assert set(empty["scores"].values()) == {None} and empty["n_tokens"] == 0
    assert None not in short["scores"].values() and short["n_tokens"] == 1
    assert document["study"]["n_unscored"] == 1
    (threshold,) = document["thresholds"]
    n_above = sum(row["p_value"] <= 0.1 for row in [*tested, short])
    found = [threshold[key] for key in ("method", "n_pool", "n_above")]
    assert found == ["min_k", 23, n_above] and n_above >= 15
    assert primary_of(document)["method"] == "set_level"
    assert 0.3 < document["study"]["seen"]["low"] <= 0.95
    page = (questions / "report.html").read_text()
    check_page(page)
    assert "rank above what the non-members explain (95%, by min_k" in page
    assert ">occurs more than once</td>" in page


def test_seen_books_have_high_rates_and_new_ones_low(books):
    """Nothing but training tells the books apart, and no baseline does."""
    document, page = read(books), (books / "report.html").read_text()
    found = document["study"]["documents"]
    rates = {row["document"]: row for row in found["rates"]}
    asked = {name: row["rate"] for name, row in rates.items() if row["role"] == "text"}
    assert asked == {"seen10": 1.0, "seen11": 1.0, "unseen10": 0.0, "<b>new": 0.0}
    assert (found["n_members"], found["n_nonmembers"]) == (10, 10)
    assert found["accuracy"] == found["accuracy_held_out"] == 1.0
    for row in rates.values():
        assert row["n_texts"] == row["n_scored"] == 2
        assert (row["rate_low"], row["rate_high"]) == wilson_interval(row["n_above"], 2)
    one = primary_of(document)
    assert (one["method"], one["n_clusters"]) == ("min_k", 20)
    assert (one["auc"], one["verdict"]) == (1.0, "may rank higher")
    # Books of both kinds were drawn from one law: no text can tell them apart.
    blind = {row["name"]: round(row["auc"], 3) for row in document["blind"]}
    assert blind == {
        "bag_of_words": 0.39,
        "length": 0.59,
        "numbers": 0.5,
        "ngram": 0.487,
        "fluency": 0.428,
    }
    # A page runs nothing that a text or a name says.
    check_page(page)
    assert HOSTILE not in page and "&lt;script&gt;" in page
    assert "<b>new" not in page and "&lt;b&gt;new" in page
    assert "a seen one shows a rate of 100% on average and an unseen one 0%" in page


def test_without_known_texts_there_are_scores_and_no_verdict(model, files, tmp_path):
    """A dry run counts what a run scores, and another run scores nothing again."""
    words = (model, files / "seen.txt", "--out", tmp_path)
    words = (*words, "--scores", "min_k", "lowercase", "neighbourhood")
    counted = run(*words, "--dry-run")
    assert not (tmp_path / "report.json").exists()
    assert "rank higher" not in run(*words)
    rows, first = (tmp_path / "texts.jsonl").read_bytes(), read(tmp_path)
    assert first["results"] == [] and "thresholds" not in first
    assert len(read_text_rows(tmp_path)) == 24
    assert "there is no threshold" in (tmp_path / "report.html").read_text()
    assert f"{first['study']['tokens_scored']:,} tokens to score" in counted
    second = json.loads(run(*words, "--json"))["study"]
    assert first["study"]["cached_tokens"] < second["tokens_scored"]
    assert second["cached_tokens"] == second["tokens_scored"]
    assert (tmp_path / "texts.jsonl").read_bytes() == rows


def test_all_goes_without_what_no_text_can_stand_behind(model, tmp_path):
    # Texts as long as the context leave no room before them.
    rows = [
        {"input": f"{text} " * 8, "label": side}
        for side, texts in ((1, MEMBERS), (0, OTHERS))
        for text in texts
    ]
    path = write_lines(tmp_path / "long.jsonl", rows)
    said = run(model, path, "--scores", "all", "--dry-run")
    assert said.startswith("48 texts, ") and " loss," in said
    assert "recall" not in said and "codec" not in said


def test_flags_are_keywords_and_counts_of_a_corpus_are_kept(model, files, tmp_path):
    path, corpus = tmp_path / "q.jsonl", tmp_path / "corpus.txt"
    write_lines(path, [{"q": text, "id": i} for i, text in enumerate(MEMBERS)])
    corpus.write_text("\n".join(drawn_texts(30, seed=5)))
    asked = {"text": "q", "sample": 12, "scores": f"dc_pdd:{corpus}"}
    whole = jaxcontam.membership(model, path, **asked)
    found = jaxcontam.membership(model, path, **asked, no_prefix=True)
    assert len(found.rows) == 12
    # Without BOS the first token has no score.
    n_found, n_whole = ([r["n_tokens"] for r in one.rows] for one in (found, whole))
    assert n_found == [n - 1 for n in n_whole]
    words = (model, path, "--text", "q", "--sample", 12, "--no-prefix")
    words = (*words, "--scores", f"dc_pdd:{corpus}", "--out", tmp_path / "out")
    made = []
    for _ in range(2):
        run(*words)
        rows = read_text_rows(tmp_path / "out")
        assert [row["scores"] for row in found.rows] == [row["scores"] for row in rows]
        (kept,) = (tmp_path / "out").glob("corpus-counts-*.npy")
        made.append(kept.stat().st_mtime_ns)
    assert made[0] == made[1]
    with pytest.raises(InputError, match="unknown argument of membership 'textfield'"):
        jaxcontam.membership(model, path, textfield="q")
    with pytest.raises(InputError, match="needs members and non-members"):
        jaxcontam.membership(model, files / "seen.txt", sweep_k=True)


def test_a_table_says_what_made_the_neighbours(model, files, tmp_path, monkeypatch):
    def replaced(text, n, seed):
        return [f"{text} {word}" for word in ("beno", "ka", "la")]

    def setting(document):
        (row,) = document["results"]
        return row["setting"]

    maker = types.SimpleNamespace(replaced=replaced, kind=SpanModel.kind)
    monkeypatch.setattr("jaxcontam.models.masked.load_neighbours", lambda _: maker)
    given = {"members": files / "seen.txt", "nonmembers": files / "unseen.txt"}
    words = (model, *(w for name, path in given.items() for w in (f"--{name}", path)))
    for folder, score, by in (
        ("a", "neighbourhood", "edits of words"),
        ("b", f"neighbourhood:{tmp_path}", "filled spans, over their deviation"),
    ):
        said = run(*words, "--scores", score, "--out", tmp_path / folder)
        assert f"\n  {by}" in said
        assert setting(read(tmp_path / folder)) == by
        page = (tmp_path / folder / "report.html").read_text()
        assert f">neighbourhood {by}<" in page
    asked = {"scores": "neighbourhood", "neighbours": replaced}
    plain = jaxcontam.membership(model, **asked, **given)
    assert plain.results[0].setting == "given neighbours"
    # Over a deviation of theirs.
    z = read_text_rows(tmp_path / "b")[0]["scores"]["neighbourhood"]
    assert z / plain.rows[0]["scores"]["neighbourhood"] not in (0, 1)


def test_a_second_look_has_a_folder_of_its_own_and_is_counted(
    model, files, referenced, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = (model, "--members", files / "seen.txt")
    words = (*words, "--nonmembers", files / "unseen.txt")
    assert "other report" not in run(*words, "--scores", "loss")
    said = " ".join(run(*words, "--scores", "min_k").split())
    assert "1 other report is in the same folder, on this model and a file" in said
    made = sorted((tmp_path / "runs/membership").glob("*/report.json"))
    pages = [path.with_name("report.html").read_text() for path in made]
    assert sum("1 other report is in the same folder" in page for page in pages) == 1
    # What was scored once is not scored again.
    assert len(list((tmp_path / "runs/membership").glob("*-store"))) == 1
    # Two files say what one labelled file says.
    one = primary_of(read(referenced))
    rows = [primary_of(read(path.parent)) for path in made]
    (two,) = (row for row in rows if row["method"] == "min_k")
    for key in ("auc", "auc_se", "p_value", "operating_points"):
        assert one[key] == two[key]
