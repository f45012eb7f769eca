"""`jaxcontam membership`: labels, pools, prefixes, files, verification, refusals."""

import dataclasses
import json

import pytest

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.members.command import Membership
from jaxcontam.members.known_texts import MEMBER, NONMEMBER
from jaxcontam.reports.archive import read_text_rows
from tests.support.membership_model import MEMBERS, OTHERS, drawn_texts
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised

# A word that no other text has, and what a page must not run.
HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Members, other texts, and both in one file with labels."""
    folder = tmp_path_factory.mktemp("texts")
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    rows = [{"input": t, "label": 1} for t in MEMBERS]
    rows += [{"input": t, "label": 0} for t in OTHERS]
    both = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "both.jsonl").write_text(both)
    return folder


@pytest.fixture(scope="module")
def labelled(model, files, tmp_path_factory):
    """A finished run on the labelled file, with scores that take prefixes."""
    out = tmp_path_factory.mktemp("labelled")
    jaxcontam.membership(
        model,
        files / "both.jsonl",
        scores=("auto", "recall", "con_recall"),
        shots=2,
        sweep_k=True,
        fprs=(0.1,),
    ).save(out)
    return out


def read(out):
    return json.loads((out / "report.json").read_text())


def primary_of(document):
    (row,) = [row for row in document["results"] if row["primary"]]
    return row


def test_members_that_the_model_knows_by_heart_rank_first(labelled):
    row = primary_of(read(labelled))
    assert row["method"] == "min_k" and row["auc"] > 0.9
    assert row["auc_low"] < row["auc"] <= row["auc_high"]
    # No model that saw neither side was asked.
    assert row["p_value"] <= 0.001 and row["verdict"] == "may rank higher"
    assert "at most `may rank higher`" in row["warnings"][-1]


def test_every_text_comes_out_once_and_in_order(labelled):
    rows = read_text_rows(labelled)
    assert [row["id"] for row in rows] == list(range(len(MEMBERS) + len(OTHERS)))
    assert [row["role"] for row in rows] == [MEMBER] * 24 + [NONMEMBER] * 24
    assert [row["text"] for row in rows] == [*MEMBERS, *OTHERS]


def test_texts_of_a_prefix_take_part_in_no_comparison(labelled):
    rows, document = read_text_rows(labelled), read(labelled)
    held = [row for row in rows if row["left_out"]]
    assert sorted(row["role"] for row in held) == [MEMBER] * 2 + [NONMEMBER] * 2
    assert all(value is None for row in held for value in row["scores"].values())
    one = primary_of(document)
    assert (one["n_members"], one["n_nonmembers"]) == (22, 22)
    assert document["study"]["n_left_out"] == 4


def test_a_sweep_chooses_on_one_half_and_judges_on_the_other(labelled):
    sweep = read(labelled)["study"]["sweep"]
    assert list(sweep["held_out_aucs"]) == [
        *("min_k_10", "min_k", "min_k_30", "min_k_40", "min_k_50")
    ]
    assert sweep["held_out_aucs"][sweep["chosen"]] == max(
        sweep["held_out_aucs"].values()
    )
    assert "Sweep over k" in (labelled / "report.html").read_text()


def test_a_blind_baseline_stands_beside_every_auc(labelled):
    document = read(labelled)
    assert {row["name"] for row in document["blind"]} == {
        "bag_of_words",
        "length",
        "numbers",
        "ngram",
        "fluency",
    }
    assert all(row["increment"] is not None for row in document["results"])


def test_verify_judges_a_report_again(labelled, capsys):
    assert main(["verify", str(labelled)]) == 0
    n = len(read(labelled)["results"])
    assert f"{n} results judged again" in capsys.readouterr().out


def test_verify_finds_a_number_that_was_changed(labelled, tmp_path, capsys):
    document = read(labelled)
    primary_of(document)["p_value"] *= 0.99
    for name in ("texts.jsonl", "report.html", "results.csv", "SHA256SUMS"):
        (tmp_path / name).write_bytes((labelled / name).read_bytes())
    (tmp_path / "report.json").write_text(json.dumps(document))
    assert main(["verify", str(tmp_path)]) == 3
    assert "results[0].p_value" in capsys.readouterr().out


def test_verify_finds_a_score_that_was_changed(labelled, tmp_path, capsys):
    (tmp_path / "report.json").write_bytes((labelled / "report.json").read_bytes())
    rows = read_text_rows(labelled)
    chosen = next(row for row in rows if row["role"] == MEMBER and not row["left_out"])
    chosen["scores"]["min_k"] -= 1000
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines)
    assert main(["verify", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "its digest is not the one" in said and "results[0].auc" in said


def test_two_files_say_what_one_labelled_file_says(model, files, tmp_path):
    kept = {"out": tmp_path / "one", "scores": ("loss",), "fpr": (0.1,)}
    one = Membership(model=model, texts=str(files / "both.jsonl"), **kept).run()
    two = Membership(
        model=model,
        members=str(files / "seen.txt"),
        nonmembers=str(files / "unseen.txt"),
        **kept | {"out": tmp_path / "two"},
    ).run()
    for key in ("auc", "auc_se", "p_value", "verdict", "operating_points"):
        assert primary_of(one)[key] == primary_of(two)[key]


def test_a_dry_run_counts_what_a_run_scores(model, files, tmp_path, capsys):
    words = ["membership", model, str(files / "seen.txt"), "--out", str(tmp_path)]
    words += ["--scores", "min_k", "lowercase", "--json"]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert not (tmp_path / "report.json").exists()
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert f"{document['study']['tokens_scored']:,} tokens to score" in said


def test_texts_in_question_get_a_p_value_each(model, files, tmp_path, capsys):
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("\n".join([*MEMBERS[:19], HOSTILE]) + "\n")
    document = Membership(
        model=model,
        texts=str(unknown),
        nonmembers=str(files / "unseen.txt"),
        out=tmp_path / "out",
        fpr=(0.1,),
    ).run()
    rows = read_text_rows(tmp_path / "out")
    asked = [row for row in rows if row["role"] == "text"]
    assert len(asked) == 20 and len(rows) == 44
    # The smallest conformal p-value is 1 / (pool + 1).
    assert min(row["p_value"] for row in asked) == pytest.approx(1 / 25, abs=1e-12)
    assert all(row["p_value"] is None for row in rows if row["role"] == NONMEMBER)
    (threshold,) = document["thresholds"]
    assert threshold["method"] == "min_k" and threshold["n_above"] >= 15
    assert primary_of(document)["method"] == "set_level"
    seen = document["study"]["seen"]
    assert 0.3 < seen["low"] <= 0.95 and main(["verify", str(tmp_path / "out")]) == 0
    # A page runs nothing that a text says.
    page = (tmp_path / "out" / "report.html").read_text()
    check_page(page)
    assert HOSTILE not in page and "&lt;script&gt;" in page
    assert "rank above what the non-members explain (95 %, by min_k" in page
    path, low = tmp_path / "out" / "report.json", f'"low": {seen["low"]}'
    path.write_text(path.read_text().replace(low, '"low": 0.96'))
    assert main(["verify", str(tmp_path / "out")]) == 3
    assert f"0.96, recomputed {seen['low']}" in capsys.readouterr().out


def test_without_known_texts_there_are_scores_and_no_verdict(
    model, files, tmp_path, capsys
):
    out = tmp_path / "out"
    seen = str(files / "seen.txt")
    assert main(["membership", model, seen, "--out", str(out)]) == 0
    document = read(out)
    assert document["results"] == [] and "thresholds" not in document
    assert len(read_text_rows(out)) == 24
    assert "there is no threshold" in (out / "report.html").read_text()
    assert "rank higher" not in capsys.readouterr().out


def test_empty_and_one_token_texts_keep_their_rows(model, files, tmp_path):
    rows = [{"input": t, "label": 1} for t in [*MEMBERS[:12], "", "a"]]
    rows += [{"input": t, "label": 0} for t in OTHERS[:12]]
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    document = Membership(
        model=model, texts=str(path), out=tmp_path / "out", fpr=(0.1,)
    ).run()
    found = read_text_rows(tmp_path / "out")
    assert len(found) == 26
    assert set(found[12]["scores"].values()) == {None} and found[12]["n_tokens"] == 0
    assert None not in found[13]["scores"].values() and found[13]["n_tokens"] == 1
    assert primary_of(document)["n_unscored"] == 1


def test_with_a_reference_that_saw_nothing_the_word_is_the_strongest(
    model, files, tmp_path, capsys
):
    from transformers import PreTrainedTokenizerFast

    from jaxcontam.models.checkpoint import save_checkpoint
    from tests.support.membership_model import fresh_decoder, tokenizer

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), bos_token="<|bos|>")
    other, out = tmp_path / "other", tmp_path / "out"
    save_checkpoint(fresh_decoder(3), fast, other)
    words = ["membership", model, str(files / "both.jsonl"), "--scores", "min_k"]
    assert main([*words, "--reference", str(other), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "blind: the reference model" in said
    document = read(out)
    assert [row["name"] for row in document["blind"]][-1] == "reference"
    assert primary_of(document)["verdict"] == "members rank higher"
    assert "the reference model" in (out / "report.html").read_text()
    assert main(["verify", str(out)]) == 0
    # A report that keeps its word and loses the reference is found out.
    rows = (out / "texts.jsonl").read_text().splitlines()
    rows = [json.loads(row) for row in rows]
    assert all(len(row.pop("reference")) == 2 for row in rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (out / "texts.jsonl").write_text(text)
    capsys.readouterr()
    assert main(["verify", str(out)]) == 3
    assert (
        "is 'members rank higher', recomputed 'may rank higher'"
        in capsys.readouterr().out
    )


def test_a_reference_that_is_the_model_itself_says_nothing(model, files, tmp_path):
    Membership(
        model=model,
        texts=str(files / "seen.txt"),
        reference=model,
        scores=("reference",),
        out=tmp_path,
    ).run()
    assert {row["scores"]["reference"] for row in read_text_rows(tmp_path)} == {0.0}


def test_token_counts_of_a_corpus_are_kept(model, files, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(drawn_texts(30, seed=5)))
    command = Membership(
        model=model,
        texts=str(files / "seen.txt"),
        corpus=(corpus,),
        scores=("dc_pdd",),
        out=tmp_path / "out",
    )
    command.run()
    rows = (tmp_path / "out" / "texts.jsonl").read_bytes()
    (kept,) = (tmp_path / "out").glob("corpus-counts-*.npy")
    made = kept.stat().st_mtime_ns
    command.run()
    assert (tmp_path / "out" / "texts.jsonl").read_bytes() == rows
    assert kept.stat().st_mtime_ns == made


# Eight seconds.
@pytest.mark.slow
def test_all_goes_without_what_no_text_can_stand_behind(model, files, tmp_path):
    # Texts as long as the context leave no room for a prefix.
    rows = [{"input": f"{t} " * 8, "label": 1} for t in MEMBERS[:17]]
    rows += [{"input": f"{t} " * 8, "label": 0} for t in OTHERS[:17]]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = Membership(
        model=model, texts=str(path), out=tmp_path / "out", scores=("all",), fpr=(0.1,)
    )
    document = command.run()
    methods = {row["method"] for row in document["results"]}
    assert "loss" in methods and not methods & {"recall", "con_recall"}
    assert any("left out" in one for one in document["study"]["warnings"])
    assert document["study"]["n_left_out"] == 0
    with pytest.raises(InputError, match="fits the model's context"):
        dataclasses.replace(command, scores=("loss", "recall")).run()


def test_a_pool_without_a_token_is_refused(model, files, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text('{"input": ""}\n' * 12)
    seen = str(files / "seen.txt")
    command = Membership(
        model=model, texts=seen, nonmembers=str(path), out=tmp_path / "out"
    )
    with pytest.raises(InputError, match="0 texts of nonmembers can be compared"):
        command.run()


def test_flags_are_keywords_of_the_function(model, tmp_path):
    rows = [{"q": text, "id": i} for i, text in enumerate(MEMBERS)]
    path, corpus = tmp_path / "q.jsonl", tmp_path / "corpus.txt"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus.write_text("\n".join(drawn_texts(30, seed=5)))
    asked = {"text_field": "q", "limit": 12, "scores": "dc_pdd", "corpus": [corpus]}
    found = jaxcontam.membership(model, path, **asked)
    assert len(found.rows) == 12
    command = Membership(
        model=model, texts=str(path), out=tmp_path / "out", **asked
    ).run()
    assert command["study"]["n_texts"] == 12
    scores = [row["scores"] for row in read_text_rows(tmp_path / "out")]
    assert [row["scores"] for row in found.rows] == scores
    with pytest.raises(InputError, match="unknown argument of membership 'textfield'"):
        jaxcontam.membership(model, path, textfield="q")


def test_a_sweep_needs_both_sides(model, files):
    with pytest.raises(InputError, match="needs members and non-members"):
        jaxcontam.membership(model, files / "seen.txt", sweep_k=True)


def test_a_second_look_has_a_folder_of_its_own_and_is_counted(
    model, files, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ["membership", model, "--members", str(files / "seen.txt")]
    words += ["--nonmembers", str(files / "unseen.txt")]
    assert main([*words, "--scores", "loss"]) == 0
    assert "other report" not in capsys.readouterr().out
    assert main([*words, "--scores", "min_k"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 other report on this model and a file of this report stands" in said
    first, second = sorted((tmp_path / "runs/membership").glob("*/report.json"))
    pages = [path.with_name("report.html").read_text() for path in (first, second)]
    assert sum("1 other report on this model" in page for page in pages) == 1
    # What was scored once is not scored again.
    assert len(list((tmp_path / "runs/membership").glob("*-store"))) == 1
