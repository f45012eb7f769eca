"""Commands over a served model: the numbers of the local one, and what is refused."""

import dataclasses
import itertools
import json
import re
import types

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.scoring.api.client import ApiClient
from tests.support import model_server
from tests.support.membership_model import (
    CONTEXT,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
)

pytestmark = pytest.mark.unoptimised

TEXTS = drawn_texts(10, seed=30)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A model as a folder and behind a server, and words that name files of texts.

    Its `ways` are those to ask it: the folder, by ids, and by text.
    """
    root = tmp_path_factory.mktemp("served")
    folder = str(root / "here")
    save_checkpoint(fresh_decoder(4), fast_tokenizer(), root / "here")
    variants = [{"text": text, "variants": [text.lower()]} for text in TEXTS]
    labelled = [
        {"text": text, "label": i % 2}
        for i, text in enumerate(drawn_texts(32, seed=31, n_words=3))
    ]
    for name, rows in (("b", variants), ("labelled", labelled)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (root / f"{name}.jsonl").write_text(lines)
    checkpoint = dataclasses.replace(load_checkpoint(folder), name="tiny")
    with model_server.running_server(checkpoint) as url:
        word = f"api:{url}#tiny"
        field, ids = ("--text", "text"), ("--tokenizer", folder)
        labelled = (root / "labelled.jsonl", *field, "--fields", "member=label")
        yield types.SimpleNamespace(
            word=word,
            ids=ids,
            ways={"here": (folder,), "ids": (word, *ids), "text": (word,)},
            benchmark=(root / "b.jsonl", *field),
            labelled=labelled,
        )


def run(*words):
    assert main([str(word) for word in words]) == 0, words


def report_of(out):
    return json.loads((out / "report.json").read_text())


def refused(capsys, *words):
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


def audit(served, way, out, *flags):
    run("audit", *served.ways[way], *served.benchmark, "--out", out, *flags)
    return report_of(out)


def test_an_audit_by_ids_has_the_numbers_of_the_model_itself(served, tmp_path):
    # Permutation reads the whole file, in windows.
    flags = ("--tests", "direction,adjacency,permutation:3")
    ways = ("here", "ids")
    here, there = (audit(served, way, tmp_path / way, *flags) for way in ways)
    ours, theirs = (np.load(tmp_path / way / "orders.npz") for way in ways)
    with ours, theirs:
        assert set(ours) == set(theirs)
        for name in ours:
            # Sums of up to 250 log-probabilities, each within some 1e-6.
            atol = 1e-3 if ours[name].dtype.kind == "f" else 0
            np.testing.assert_allclose(ours[name], theirs[name], atol=atol)
    for mine, other in zip(here["results"], there["results"], strict=True):
        read = [row["tokens_scored"] + row["cached_tokens"] for row in (mine, other)]
        assert read[0] == read[1]
        assert other["p_value"] == pytest.approx(mine["p_value"], abs=1e-3)
        assert other["verdict"] == mine["verdict"]
    model = there["model"]
    assert model["name"] == served.word and model["n_parameters"] is None
    assert model["context"] == CONTEXT and there["device"] is None
    assert model["served"]["way"] == "echo with logprobs, prompts as token ids"
    assert "served" not in here["model"]
    run("verify", tmp_path / "ids")
    # What was answered is not asked again.
    again = audit(served, "ids", tmp_path / "ids", *flags)
    assert all(row["tokens_scored"] == 0 for row in again["results"])
    assert [r["p_value"] for r in again["results"]] == [
        r["p_value"] for r in there["results"]
    ]


def test_a_dry_run_counts_what_a_run_sends_which_leaves_some_scores_out(
    served, tmp_path, capsys, monkeypatch
):
    sent, post_all = [], ApiClient.post_all

    def counted(self, path, bodies, *rest, **more):
        if more.get("is_kept", True):
            sent.extend(self.key(path, body) for body in bodies)
        return post_all(self, path, bodies, *rest, **more)

    monkeypatch.setattr(ApiClient, "post_all", counted)
    words = (*served.labelled, *served.ids, "--out", tmp_path)
    # Nobody listens there.
    nowhere = "api:http://127.0.0.1:9/v1#tiny"
    run("membership", nowhere, *words, "--dry-run", "--price", "1,0")
    said = capsys.readouterr().out
    assert not sent
    said_of_weights = refused(
        capsys, "membership", served.word, *words, "--scores", "gradient_norm"
    )
    assert "gradient_norm: needs the weights of the model" in said_of_weights
    sent.clear()
    run("membership", served.word, *words)
    assert f"{len(set(sent)):,} requests to send, 0 answered before" in said
    assert "cost at most" in said
    run("membership", served.word, *words, "--dry-run")
    assert f"0 requests to send, {len(set(sent)):,} answered" in capsys.readouterr().out
    # Those that read the whole distribution.
    document = report_of(tmp_path)
    methods = {row["method"] for row in document["results"]}
    assert methods == {"min_k", "loss", "zlib", "lowercase"}
    warnings = document["study"]["warnings"]
    assert any("min_k_pp, surp, gap_k left out" in words for words in warnings)


def test_score_writes_the_same_rows_and_says_where_tokens_begin(served, tmp_path):
    rows = {}
    for name, way in served.ways.items():
        out = tmp_path / f"{name}.jsonl"
        run("score", way[0], *served.benchmark, "--out", out, *way[1:])
        rows[name] = [json.loads(line) for line in out.read_text().splitlines()]
    for here, ids, text in zip(*rows.values(), strict=True):
        assert ids["token_ids"] == here["token_ids"]
        for other in (ids, text):
            np.testing.assert_allclose(other["logprobs"], here["logprobs"], atol=1e-5)
            assert other["means"] is None and other["variances"] is None
        assert text["token_ids"] is None and text["offsets"][0] == 0
        assert len(text["offsets"]) == len(text["logprobs"])


def test_a_dry_run_of_an_audit_counts_requests_and_their_price(served, capsys):
    prices = ("--price", "2,8")
    flags = ("--tests", "reversal", *served.ids, "--dry-run", "--json", *prices)
    run("audit", served.word, *served.benchmark, *flags)
    found = json.loads(capsys.readouterr().out)
    requests, test = found["requests"], found["tests"][0]
    assert requests["n_requests"] == test["n_sequences"]
    # Prompts are the targets and the id before them; one token is written each.
    assert requests["prompt_tokens"] == test["n_targets"] + test["n_sequences"]
    expected = 2e-6 * requests["prompt_tokens"] + 8e-6 * requests["n_requests"]
    assert requests["cost"] == pytest.approx(expected, rel=1e-12)
    assert found["minutes"] is None


@pytest.mark.parametrize("command", ["audit", "membership"])
def test_a_dry_run_counts_the_reference_too(served, command, tmp_path, capsys):
    files = served.benchmark if command == "audit" else served.labelled
    prices = ("--price", "1,1")
    words = (command, served.word, *files, *served.ids, *prices, "--out", tmp_path)
    timed = ("--time",) * (command == "audit")
    words = (*words, "--dry-run", *timed, "--reference")
    assert "none: no such model directory" in refused(capsys, *words, tmp_path / "none")
    here, nowhere = *served.ways["here"], "api:http://127.0.0.1:9/v1#older"
    for reference, cost in (
        (here, "here: [0-9,]+ tokens to score.* second.* at the speed of one batch"),
        (nowhere, ".*#older: [1-9][0-9,]* requests to send.*cost at most"),
    ):
        run(*words, reference)
        said = " ".join(capsys.readouterr().out.split())
        assert re.search(f"requests to send.*The reference, {cost}", said)


def test_a_budget_ends_the_run_and_a_higher_one_goes_on(served, tmp_path, capsys):
    words = ("audit", served.word, *served.benchmark, "--tests", "reversal")
    words += (*served.ids, "--out", tmp_path, "--concurrency", "1")
    words += ("--price", "1,1", "--budget")
    # The probe and its rows take some 500 tokens.
    said = refused(capsys, *words, "0.0008")
    assert "budget of 0.0008 does not allow one more request" in said
    assert not (tmp_path / "report.json").exists()
    run(*words, "1")
    assert report_of(tmp_path)["results"][0]["cached_tokens"] > 0


def test_no_answers_of_two_eras_are_compared(served, tmp_path, monkeypatch):
    flags = ("--store", tmp_path / "store", "--tests")
    found = [audit(served, "ids", tmp_path / "a", *flags, "permutation:19")]
    old = model_server.logprobs_of
    monkeypatch.setattr(model_server, "logprobs_of", lambda *asked: old(*asked) - 0.02)
    for n in (19, 29, 39):
        found.append(
            audit(served, "ids", tmp_path / f"{n}", *flags, f"permutation:{n}")
        )
    a, b, c, d = (document["results"][0] for document in found)
    assert (b["tokens_scored"], b["p_value"]) == (0, a["p_value"])
    assert c["cached_tokens"] == 0 < d["cached_tokens"] == c["tokens_scored"]


def test_a_model_that_changes_behind_its_server_is_refused(
    served, tmp_path, capsys, monkeypatch
):
    """By its numbers: no server need say what it serves."""
    words = ("score", served.word, *served.benchmark, *served.ids)
    words += ("--store", tmp_path / "store", "--out")
    run(*words, tmp_path / "a.jsonl")
    logprobs_of, asked = model_server.logprobs_of, itertools.count()
    decoder, n_before = fresh_decoder(5), 0

    def changed(first, ids):
        return logprobs_of(first if next(asked) < n_before else decoder, ids)

    monkeypatch.setattr(model_server, "logprobs_of", changed)
    said = refused(capsys, *words, tmp_path / "b.jsonl")
    assert "differs from the one whose answers are in" in said
    # After the probe and some answers.
    asked, n_before = itertools.count(), 12
    flags = (*served.ids, "--tests", "reversal", "--out", tmp_path / "out")
    said = refused(capsys, "audit", served.word, *served.benchmark, *flags)
    assert "the model changed during the run" in said
    assert not (tmp_path / "out" / "report.json").exists()


def test_other_commands_take_served_models_too(served, tmp_path):
    numbers = []
    for name, way in served.ways.items():
        out = ("--out", tmp_path / name)
        run("variants", way[0], served.benchmark[0], *out, *way[1:])
        numbers.append(report_of(tmp_path / name)["results"][0]["statistic"])
    assert numbers == pytest.approx(numbers[:1] * 3, rel=1e-4)
    flags = ("--draws", "2", "--out", tmp_path / "c", "--context", "80")
    run("calibrate", served.word, *served.benchmark, *flags)
    assert report_of(tmp_path / "c")["results"][0]["n_draws"] == 2
    flags = ("--tests", "reversal", "--context", "80")
    document = audit(served, "text", tmp_path / "d", *flags)
    assert document["model"]["served"]["has_bos"] is True
    warnings = document["results"][0]["warnings"]
    assert any("counted in characters" in words for words in warnings)
