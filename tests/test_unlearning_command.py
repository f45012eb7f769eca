"""`jaxcontam unlearning` on a tiny model that was tuned away from half of its texts."""

import json

import numpy as np
import pytest

from jaxcontam.cli import main
from jaxcontam.data.rouge import rouge_l
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.report.unlearning import MEANING
from tests.api_server import chat, prompt_of, serving
from tests.page_laws import check_page
from tests.unlearning_models import (
    FORGOTTEN,
    KEPT,
    N_TEXTS,
    N_WORDS,
    PROMPT_WORDS,
    WORDS,
    fresh_decoder,
    word_tokenizer,
    write_pair,
)

pytestmark = pytest.mark.unoptimised

SIZES = ("--words", str(N_WORDS), "--prompt-words", str(PROMPT_WORDS))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def finished(pair, tmp_path_factory):
    """Words of a whole run, its folder and its report."""
    original, unlearned, texts = map(str, pair)
    # Brackets mean nothing to the terminal.
    out = tmp_path_factory.mktemp("out") / "of [red] and [/b]"
    words = ["unlearning", original, unlearned, texts, *SIZES, "--complete"]
    words += ["--samples", "6", "--out", str(out)]
    assert main(words) == 0
    return words, out, json.loads((out / "report.json").read_text())


def text_rows(out):
    lines = (out / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_forgotten_texts_are_not_suspicious_and_kept_ones_are(finished):
    _, out, report = finished
    rows = text_rows(out)
    assert [row["text"] for row in rows] == FORGOTTEN + KEPT
    suspicious = np.array([row["suspicious"]["min_k"] for row in rows])
    assert not suspicious[:N_TEXTS].any()
    # Single ratios of a model of this size vary; most lie within the bound.
    assert suspicious[N_TEXTS:].mean() > 0.5
    by_perplexity = np.array([row["suspicious"]["perplexity"] for row in rows])
    assert not by_perplexity[:N_TEXTS].any()
    screens = [row for row in report["results"] if "n_suspicious" in row]
    assert [row["method"] for row in screens] == ["min_k", "perplexity"]
    assert screens[0]["n_suspicious"] == suspicious.sum()


def test_the_unlearned_model_writes_what_it_still_knows(finished):
    _, out, report = finished
    (row,) = (row for row in report["results"] if row["method"] == "rouge_l_recall")
    assert row["selected_low"] > row["unselected_high"]
    assert row["above_elsewhere_low"] > 0.2
    for text in text_rows(out):
        assert len(text["samples"]) == 6
        expected = [rouge_l(text["truth"], one).recall for one in text["samples"]]
        assert text["rouge_l_recall"] == expected
        assert text["text"].startswith(text["prompt"])
        assert text["text"].endswith(text["truth"])


def test_scores_follow_from_the_ratio_of_the_two_models(finished):
    _, out, _ = finished
    for row in text_rows(out):
        scores = row["scores"]
        ratio = scores["min_k_unlearned"] / scores["min_k_original"]
        assert row["ratios"]["min_k"] == pytest.approx(ratio, rel=1e-12)
        gap = scores["loss_original"] - scores["loss_unlearned"]
        assert row["ratios"]["perplexity"] == pytest.approx(np.exp(gap), rel=1e-12)


def test_the_report_is_that_of_both_models_and_its_page_says_what_it_means(finished):
    _, out, report = finished
    assert (report["original"]["name"], report["model"]["name"]) == (
        "original",
        "unlearned",
    )
    page = (out / "report.html").read_text()
    assert MEANING in page
    check_page(page)
    assert "<code>jaxcontam verify DIR</code>" in page
    assert page.count("<svg") == 2
    before = page
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == before


def test_a_rerun_samples_nothing_again_and_gives_the_same_texts(finished, monkeypatch):
    words, out, report = finished
    before = (out / "texts.jsonl").read_bytes()

    def never(_, prompts, *__, **___):
        assert not prompts, "a finished prompt was sampled again"
        return iter(())

    monkeypatch.setattr("jaxcontam.scoring.completions.continuations", never)
    assert main(words) == 0
    assert (out / "texts.jsonl").read_bytes() == before
    again = json.loads((out / "report.json").read_text())
    assert again["results"] == report["results"]


def test_a_run_goes_on_from_a_journal_that_was_cut(finished, monkeypatch):
    words, out, _ = finished
    before = (out / "texts.jsonl").read_bytes()
    journal = out / "samples.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    # Half of the prompts, and half a line.
    journal.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:30])
    assert main(words) == 0
    assert (out / "texts.jsonl").read_bytes() == before


def test_a_report_is_verified_from_its_texts_alone(finished, tmp_path, capsys):
    _, out, _ = finished
    assert main(["verify", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"{out}: verified, 3 results counted again" in said
    for name, before, after, fault in (
        ("report.json", '"n_suspicious": ', '"n_suspicious": 1', "n_suspicious"),
        (
            "texts.jsonl",
            '"min_k_unlearned": -',
            '"min_k_unlearned": -9',
            "ratios.min_k is",
        ),
        ("texts.jsonl", '"rouge_l_recall": [', '"rouge_l_recall": [9', "recall[0] is"),
    ):
        for file in ("report.json", "texts.jsonl"):
            (tmp_path / file).write_bytes((out / file).read_bytes())
        changed = (tmp_path / name).read_text().replace(before, after, 1)
        (tmp_path / name).write_text(changed)
        assert main(["verify", str(tmp_path)]) == 3
        said = capsys.readouterr().out
        assert "digest" in said
        assert fault in said


def test_questions_cosines_and_a_judge(pair, tmp_path, monkeypatch, capsys):
    original, unlearned, _ = map(str, pair)
    questions = tmp_path / "q.jsonl"
    with questions.open("w") as file:
        for text in FORGOTTEN + KEPT:
            words = text.split()
            row = {
                "question": " ".join(words[:7]),
                "answer": " ".join(words[7:]),
            }
            file.write(json.dumps(row) + "\n")

    def answer(body, number, handler):
        assert body["model"] == "m"
        assert handler.headers["Authorization"] == "Bearer sk-secret"
        status, said = chat("no number" if number == 1 else "3\nAlike.")
        return status, said | {"system_fingerprint": f"fp_{min(number, 3)}"}

    monkeypatch.setenv("API_KEY", "sk-secret")
    out = tmp_path / "out"
    words = ["unlearning", original, unlearned, "--questions", str(questions)]
    words += ["--template", "{question}", "--samples", "3", "--most", "4"]
    words += ["--ratio", "1.5", "--temperature", "0.5", "--new-tokens", "20"]
    words += ["--embedding-model", original, "--json", "--out", str(out)]
    with serving(answer) as (url, seen):
        words += ["--judge", f"api:{url}#m"]
        assert main(words) == 0
        n_asked = len(seen)
        check_judged_questions(json.loads(capsys.readouterr().out))
        assert main(["verify", str(out)]) == 0
        assert main(words) == 0
        assert len(seen) == n_asked
    for file in out.rglob("*"):
        if file.is_file():
            assert b"sk-secret" not in file.read_bytes()


def check_judged_questions(report):
    of = {row["method"]: row for row in report["results"]}
    assert {row["task"] for row in report["results"]} == {"questions"}
    assert list(of) == [
        "min_k",
        "perplexity",
        "rouge_l_recall",
        "embedding_cosine",
        "judge",
    ]
    assert of["rouge_l_recall"]["selected"] > of["rouge_l_recall"]["unselected"]
    assert -1 <= of["embedding_cosine"]["selected"] <= 1 + 1e-6
    assert of["judge"]["selected"] == of["judge"]["best"] == 3.0
    assert of["judge"]["n_unparsed"] == 1
    (note,) = (words for words in of["judge"]["warnings"] if "snapshot" in words)
    assert note.startswith("of the judge: ")


def test_a_refused_request_is_counted_and_asked_again_only_if_wanted(
    finished, tmp_path, capsys
):
    words, sampled, _ = finished
    # The samples are there: the judge alone is asked.
    (tmp_path / "samples.jsonl").write_bytes((sampled / "samples.jsonl").read_bytes())
    refused, asked = [], []

    def answer(body, number, handler):
        asked.append(prompt_of(body))
        if number == 3:
            refused.append(asked[-1])
        if asked[-1] in refused:
            return 400, {"error": {"message": "content filter"}}
        return chat("4")

    with serving(answer) as (url, _):
        words = [*words[:-1], str(tmp_path), "--judge", f"api:{url}#m"]
        for _ in range(2):
            assert main(words) == 3
            # A second run asks nothing again.
            assert len(asked) == len(set(asked))
            row = judge_row(tmp_path)
            assert row["n_refused"] > 0
            assert row["n_unparsed"] == 0
            assert row["selected"] == 4.0
            note = f"refused to read: 1 ({url}: HTTP 400 (content filter))"
            assert note in (tmp_path / "report.html").read_text()
            # A terminal breaks lines where it likes.
            said = capsys.readouterr().out
            assert "".join(note.split()) in "".join(said.split())
            assert main(["verify", str(tmp_path)]) == 0
        n_asked = len(asked)
        refused.clear()
        assert main([*words, "--retry-refused", "--overwrite"]) == 0
        assert len(asked) == n_asked + 1
    assert judge_row(tmp_path)["n_refused"] == 0


def judge_row(out):
    report = json.loads((out / "report.json").read_text())
    (row,) = (row for row in report["results"] if row["method"] == "judge")
    return row


def test_a_judge_that_refuses_everything_stops_at_once(finished, capsys):
    words, _, _ = finished
    refusal = 400, {"error": {"message": "no such setting"}}
    with serving(lambda *_: refusal) as (url, seen):
        assert main([*words, "--overwrite", "--judge", f"api:{url}#m"]) == 2
        assert len(seen) == 2
    assert "(no such setting), whatever it is asked" in capsys.readouterr().err


def test_texts_that_are_not_screened_or_sampled_are_counted(pair, tmp_path, capsys):
    original, unlearned, _ = map(str, pair)
    texts, questions = tmp_path / "t.jsonl", tmp_path / "q.jsonl"
    texts.write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in ["", KEPT[0], " "])
    )
    rows = [("", "x"), (FORGOTTEN[0], None), (KEPT[1], KEPT[2])]
    questions.write_text(
        "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows)
    )
    out = tmp_path / "out"
    words = ["unlearning", original, unlearned, str(texts), *SIZES]
    words += ["--questions", str(questions), "--samples", "6", "--out", str(out)]
    assert main([*words, "--template", "{question}", "--new-tokens", "8"]) == 0
    said = capsys.readouterr().out
    assert "Texts without words, which give no chunk: 2." in said
    assert "Questions without a score, which are left out: 1." in said
    assert "nothing to compare a sample with, which are not sampled from: 1." in said
    assert len(text_rows(out)) == 1 + 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["t.txt", "--prompt-words", "600"], "--prompt-words must be below --words"),
        (["t.txt", "--ratio", "1"], "--ratio must be above 1, got 1"),
        (["t.txt", "--k", "0"], "--k must be above 0"),
        (["t.txt", "--temperature", "-1"], "--temperature must be 0, or at least"),
        (["t.txt", "--temperature", "1e-46"], "got 1e-46"),
        (["t.txt", "--judge", "api:http://h#m"], "compare samples, and none are asked"),
        (["t.txt", "--complete", "--judge", "h"], "--judge must be api:URL#NAME"),
        (["--complete", "--questions", "q.jsonl"], "--complete needs TEXTS"),
        (["t.txt", "--template", "Q"], "--template must hold {question}"),
        ([], "nothing to screen"),
        (["none.txt"], "none.txt: no such file"),
    ],
)
def test_bad_input_is_one_line_before_any_model_is_read(words, message, capsys):
    assert main(["unlearning", "a", "b", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_model_is_not_compared_with_itself(pair, tmp_path, capsys):
    original, _, texts = map(str, pair)
    words = ["unlearning", original, original, texts, *SIZES]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert "are the same model" in capsys.readouterr().err


def save_fresh(folder, *, words=WORDS, bos="<s>"):
    """A model of the pair's shape that has learned nothing."""
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(words), bos_token=bos, eos_token="</s>"
    )
    save_checkpoint(fresh_decoder(seed=5), tokenizer, folder)
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": WORDS[::-1]}, "row 1: ORIGINAL and UNLEARNED read different tokens"),
        ({"bos": "</s>"}, "put different tokens before a text (0 and 1)"),
    ],
)
def test_two_tokenizers_are_refused(pair, tmp_path, changes, message, capsys):
    original, _, texts = map(str, pair)
    other = save_fresh(tmp_path / "other", **changes)
    words = ["unlearning", original, other, texts, *SIZES]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_unlearned_models_have_two_folders(pair, tmp_path, monkeypatch):
    original, unlearned = map(str, pair[:2])
    # Of one name, and of one tokenizer with a word more than the texts have.
    other = save_fresh(tmp_path / "unlearned", words=[*WORDS[:-1], "none"])
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "t.jsonl"
    table.write_text(json.dumps({"text": " ".join(WORDS[:12])}) + "\n")
    for one in (unlearned, other):
        for _ in range(2):
            assert main(["unlearning", original, one, str(table), *SIZES]) == 0
    folders = list((tmp_path / "runs" / "unlearning").iterdir())
    assert len(folders) == 2
    assert all(one.name.startswith("original-unlearned-") for one in folders)
