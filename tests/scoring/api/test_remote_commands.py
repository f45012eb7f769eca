"""Commands over a served model: the numbers of the local one, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders

from jaxcontam.cli.main import main
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.models.checkpoint import Checkpoint, save_checkpoint
from jaxcontam.scoring.api.client import ApiClient
from tests.support import model_server
from tests.support.membership_model import (
    CONTEXT,
    drawn_texts,
    fresh_decoder,
    tokenizer,
)

pytestmark = pytest.mark.unoptimised

TEXTS = drawn_texts(10, seed=30)
SCORES = ("loss", "min_k", "zlib", "lowercase", "recall")


@dataclasses.dataclass(frozen=True)
class Served:
    """A model as a folder and behind a server, and files of texts."""

    folder: str
    word: str
    benchmark: str
    labelled: str


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    from transformers import PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("served")
    # Without a decoder a server could not say which tokens it reads.
    whole = Tokenizer.from_str(tokenizer().to_str())
    whole.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=whole, bos_token="<|bos|>")
    decoder = fresh_decoder(4)
    save_checkpoint(decoder, fast, root / "here")
    (root / "b.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    )
    (root / "labelled.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "label": i % 2}) + "\n"
            for i, text in enumerate(drawn_texts(32, seed=31, n_words=3))
        )
    )
    checkpoint = Checkpoint(
        name="tiny",
        decoder=decoder,
        tokenizer=plain_tokenizer(whole),
        prefix_id=0,
        fingerprint="sha256:tiny",
    )
    with model_server.running_server(checkpoint) as url:
        yield Served(
            folder=str(root / "here"),
            word=f"api:{url}#tiny",
            benchmark=str(root / "b.jsonl"),
            labelled=str(root / "labelled.jsonl"),
        )


def run(*words):
    assert main([str(word) for word in words]) == 0, words


def report_of(out):
    return json.loads((out / "report.json").read_text())


def refused(capsys, *words):
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


# Permutation reads the whole file, in windows.
ALL_PAIRS = ("--tests", "adjacency,permutation", "--n-orders", "3")


def audit(model, served, out, *flags, tests=ALL_PAIRS):
    where = (served.benchmark, "--text-field", "text", "--out", out)
    run("audit", model, *where, *tests, *flags)
    return report_of(out)


@pytest.mark.parametrize("tests", [ALL_PAIRS, ("--tests", "direction")])
def test_an_audit_by_ids_has_the_numbers_of_the_model_itself(tests, served, tmp_path):
    here = audit(served.folder, served, tmp_path / "here", tests=tests)
    ids = ("--tokenizer", served.folder)
    there = audit(served.word, served, tmp_path / "there", *ids, tests=tests)
    with (
        np.load(tmp_path / "here" / "orders.npz") as ours,
        np.load(tmp_path / "there" / "orders.npz") as theirs,
    ):
        assert set(ours) == set(theirs)
        for name in ours:
            if ours[name].dtype.kind == "f":
                # Sums of up to 250 log-probabilities, each within some 1e-6.
                np.testing.assert_allclose(ours[name], theirs[name], atol=1e-3)
            else:
                np.testing.assert_array_equal(ours[name], theirs[name])
    for mine, other in zip(here["results"], there["results"], strict=True):
        read = [row["tokens_scored"] + row["cached_tokens"] for row in (mine, other)]
        assert read[0] == read[1] > 0
        assert other["p_value"] == pytest.approx(mine["p_value"], abs=1e-3)
        assert other["verdict"] == mine["verdict"]
    model = there["model"]
    assert model["name"] == served.word and model["n_parameters"] is None
    assert model["context"] == CONTEXT and there["device"] is None
    assert model["served"]["way"] == "echo with logprobs, prompts as token ids"
    assert "served" not in here["model"]
    run("verify", tmp_path / "there")
    # What was answered is not asked again.
    again = audit(served.word, served, tmp_path / "there", *ids, tests=tests)
    assert all(row["tokens_scored"] == 0 for row in again["results"])
    assert [r["p_value"] for r in again["results"]] == [
        r["p_value"] for r in there["results"]
    ]


def test_an_audit_by_text_sums_the_servers_own_tokens(served, tmp_path, capsys):
    there = audit(served.word, served, tmp_path / "t", "--context", "80")
    assert there["model"]["served"]["has_bos"] is True
    assert any("counted in characters" in w for w in there["results"][0]["warnings"])
    capsys.readouterr()
    # Requests longer than the model reads end the run with what to do.
    said = refused(
        capsys,
        *("audit", served.word, served.benchmark, "--text-field", "text"),
        *("--tests", "permutation", "--out", tmp_path / "long"),
    )
    assert "--context N makes requests shorter" in said
    assert not (tmp_path / "long" / "report.json").exists()


# Ten seconds; an audit by ids takes the same path by default.
@pytest.mark.slow
def test_membership_by_ids_and_by_text_has_the_scores_of_the_model(served, tmp_path):
    found = []
    for name, model, flags in (
        ("here", served.folder, ()),
        ("ids", served.word, ("--tokenizer", served.folder)),
        ("text", served.word, ()),
    ):
        out = tmp_path / name
        run(
            *("membership", model, served.labelled, "--text-field", "text"),
            *("--label-field", "label"),
            *("--scores", *SCORES, "--out", out, *flags),
        )
        lines = (out / "texts.jsonl").read_text().splitlines()
        found.append([json.loads(line)["scores"] for line in lines])
    ours, *others = found
    for theirs in others:
        for mine, other in zip(ours, theirs, strict=True):
            # A text that stands in the prefix has none.
            assert (mine["loss"] is None) == (other["loss"] is None)
            for name in SCORES if mine["loss"] is not None else ():
                # Texts are cut into the same tokens alone and after a line end.
                assert other[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-5)


def test_scores_that_read_the_whole_distribution_are_left_out_or_refused(
    served, tmp_path, capsys
):
    where = (served.labelled, "--text-field", "text", "--label-field", "label")
    ids = ("--tokenizer", served.folder, "--out", tmp_path / "auto")
    run("membership", served.word, *where, *ids)
    document = report_of(tmp_path / "auto")
    assert {row["method"] for row in document["results"]} == {
        *("min_k", "loss", "zlib", "lowercase")
    }
    assert any(
        "min_k_pp, surp, gap_k left out" in w for w in document["study"]["warnings"]
    )
    ids = (*ids[:-1], tmp_path / "other")
    said = refused(capsys, "membership", served.word, *where, *ids, "--scores", "surp")
    assert "surp: needs log-probabilities of the whole vocabulary" in said
    said = refused(
        capsys, "membership", served.word, *where, *ids, "--scores", "gradient_norm"
    )
    assert "gradient_norm: needs the weights of the model" in said


def test_score_writes_the_same_rows_and_says_where_tokens_begin(served, tmp_path):
    rows = {}
    for name, model, flags in (
        ("here", served.folder, ()),
        ("ids", served.word, ("--tokenizer", served.folder)),
        ("text", served.word, ()),
    ):
        out = tmp_path / f"{name}.jsonl"
        run(
            *("score", model, served.benchmark, "--text-field", "text"),
            *("--out", out, *flags),
        )
        rows[name] = [json.loads(line) for line in out.read_text().splitlines()]
    for here, ids, text in zip(*rows.values(), strict=True):
        assert ids["token_ids"] == here["token_ids"]
        for other in (ids, text):
            np.testing.assert_allclose(other["logprobs"], here["logprobs"], atol=1e-5)
            assert other["means"] is None and other["variances"] is None
        assert text["token_ids"] is None and text["offsets"][0] == 0
        assert len(text["offsets"]) == len(text["logprobs"])


def test_a_dry_run_sends_nothing_and_counts_what_a_run_sends(
    served, tmp_path, capsys, monkeypatch
):
    sent = []
    post_all = ApiClient.post_all

    def counted(self, path, bodies, *rest, **more):
        if more.get("is_kept", True):
            sent.extend(self.key(path, body) for body in bodies)
        return post_all(self, path, bodies, *rest, **more)

    monkeypatch.setattr(ApiClient, "post_all", counted)
    words = (
        *("membership", served.word, served.labelled, "--text-field", "text"),
        *("--label-field", "label", "--tokenizer", served.folder, "--out", tmp_path),
    )
    # Nobody listens there.
    nowhere = (words[0], "api:http://127.0.0.1:9/v1#tiny", *words[2:])
    run(*nowhere, "--dry-run", "--price-in", "1")
    said = capsys.readouterr().out
    assert not sent
    run(*words)
    assert f"{len(set(sent)):,} requests to send, 0 answered before" in said
    assert "to pay" in said
    run(*words, "--dry-run")
    assert f"0 requests to send, {len(set(sent)):,} answered" in capsys.readouterr().out


def test_a_dry_run_of_an_audit_counts_requests_and_their_price(served, capsys):
    words = ("audit", served.word, served.benchmark, "--text-field", "text")
    run(
        *words,
        *("--tests", "reversal", "--tokenizer", served.folder, "--dry-run", "--json"),
        *("--price-in", "2", "--price-out", "8"),
    )
    found = json.loads(capsys.readouterr().out)
    requests = found["requests"]
    test = found["tests"][0]
    assert requests["n_requests"] == test["n_sequences"]
    # Prompts are the targets and the id before them; one token is written each.
    assert requests["prompt_tokens"] == test["n_targets"] + test["n_sequences"]
    expected = 2e-6 * requests["prompt_tokens"] + 8e-6 * requests["n_requests"]
    assert requests["cost"] == pytest.approx(expected, rel=1e-12)
    assert found["minutes"] is None


def test_a_budget_ends_the_run_and_a_higher_one_goes_on(served, tmp_path, capsys):
    words = (
        *("audit", served.word, served.benchmark, "--text-field", "text"),
        *("--tests", "reversal", "--tokenizer", served.folder, "--out", tmp_path),
        *("--price-in", "1", "--price-out", "1", "--concurrency", "1"),
    )
    # The probe and its rows take some 500 tokens.
    said = refused(capsys, *words, "--budget", "0.0008")
    assert "budget of 0.0008 does not hold one more request" in said
    assert "higher --budget" in said
    kept = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert kept and not (tmp_path / "report.json").exists()
    run(*words, "--budget", "1")
    assert report_of(tmp_path)["results"][0]["cached_tokens"] > 0


def test_no_answers_of_two_eras_are_compared(served, tmp_path, monkeypatch):
    words = ("audit", served.word, served.benchmark, "--text-field", "text")
    words += ("--tests", "permutation", "--tokenizer", served.folder)
    words += ("--store", tmp_path / "store", "--n-orders")
    run(*words, 19, "--out", tmp_path / "a")
    old = model_server.logprobs_of
    monkeypatch.setattr(model_server, "logprobs_of", lambda *asked: old(*asked) - 0.02)
    for name, n_orders in (("b", 19), ("c", 29), ("d", 39)):
        run(*words, n_orders, "--out", tmp_path / name)
    a, b, c, d = (report_of(tmp_path / name)["results"][0] for name in "abcd")
    assert (b["tokens_scored"], b["p_value"]) == (0, a["p_value"])
    assert c["cached_tokens"] == 0 < d["cached_tokens"] == c["tokens_scored"]


def test_a_model_that_changes_behind_its_server_is_refused(
    served, tmp_path, capsys, monkeypatch
):
    """By its numbers: no server need say what it serves."""
    words = (
        *("score", served.word, served.benchmark, "--text-field", "text"),
        *("--tokenizer", served.folder, "--store", tmp_path / "store"),
    )
    run(*words, "--out", tmp_path / "a.jsonl")
    logprobs_of = model_server.logprobs_of
    decoder, n_before = fresh_decoder(5), [0]

    def changed(first, ids):
        n_before[0] -= 1
        return logprobs_of(first if n_before[0] >= 0 else decoder, ids)

    monkeypatch.setattr(model_server, "logprobs_of", changed)
    said = refused(capsys, *words, "--out", tmp_path / "b.jsonl")
    assert "another model than the one whose answers are in" in said
    assert "--store" in said
    # After the probe and some answers.
    n_before[0] = 12
    audited = (served.word, served.benchmark, "--text-field", "text")
    said = refused(
        capsys,
        *("audit", *audited, "--tokenizer", served.folder, "--tests", "reversal"),
        *("--out", tmp_path / "out"),
    )
    assert "the model changed during the run" in said
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_tokenizer_of_another_model_is_refused(served, tmp_path, capsys):
    from transformers import PreTrainedTokenizerFast

    other = Tokenizer.from_str(tokenizer().to_str())
    other.decoder = decoders.ByteLevel()
    fields = json.loads(other.to_str())
    vocab = fields["model"]["vocab"]
    # Two letters have changed their ids.
    vocab["e"], vocab["o"] = vocab["o"], vocab["e"]
    swapped = Tokenizer.from_str(json.dumps(fields))
    fast = PreTrainedTokenizerFast(tokenizer_object=swapped, bos_token="<|bos|>")
    fast.save_pretrained(tmp_path / "other")
    said = refused(
        capsys,
        *("audit", served.word, served.benchmark, "--text-field", "text"),
        *("--tokenizer", tmp_path / "other", "--out", tmp_path / "out"),
    )
    assert "reads the ids of --tokenizer as other tokens" in said
    assert not list(tmp_path.glob("out/*"))


def test_other_commands_take_served_models_too(served, tmp_path):
    ids = ("--tokenizer", served.folder)
    (tmp_path / "v.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "variants": [text.lower()]}) + "\n"
            for text in TEXTS
        )
    )
    for name, model, flags in (
        ("here", served.folder, ()),
        ("there", served.word, ids),
        ("text", served.word, ()),
    ):
        out = tmp_path / name
        run("variants", model, tmp_path / "v.jsonl", "--out", out, *flags)
    numbers = [
        report_of(tmp_path / name)["results"][0]["statistic"]
        for name in ("here", "there", "text")
    ]
    assert numbers == pytest.approx(numbers[:1] * 3, rel=1e-4)
    run(
        *("calibrate", served.word, served.benchmark, "--text-field", "text"),
        *("--draws", "2", "--out", tmp_path / "c", *ids),
    )
    assert report_of(tmp_path / "c")["results"][0]["n_draws"] == 2
