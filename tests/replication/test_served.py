# ruff: noqa: F811  (a fixture of another file is an argument here)
"""`jaxcontam replicate` with a model, and a judge, behind a server."""

import http.server
import json
import re
import threading

import pytest

from jaxcontam.cli.main import main
from tests.replication.test_replicate import recorded, results  # noqa: F401
from tests.support.membership_model import MEMBERS, OTHERS

KEY = "sk-very-secret-of-the-model"
JUDGE_KEY = "sk-very-secret-of-the-judge"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    pairs = [
        {
            "premise": MEMBERS[i],
            "hypothesis": f"So {OTHERS[i].lower()}",
            "label": i % 2,
        }
        for i in range(12)
    ]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (folder / "pairs.jsonl").write_text(lines)
    return folder


def served(respond):
    """A chat server: (prompt, headers) -> text, or (code, value)."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((dict(self.headers), body))
            found = respond(body["messages"][0]["content"])
            code, value = found if isinstance(found, tuple) else (200, found)
            if code == 200:
                message = {"role": "assistant", "content": value}
                value = {
                    "model": body["model"],
                    "choices": [{"index": 0, "message": message}],
                    "usage": {"prompt_tokens": 20, "completion_tokens": 10},
                }
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    return running, thread, seen


@pytest.fixture
def server():
    """Start servers that end with the test."""
    running = []

    def start(respond):
        one, thread, seen = served(respond)
        running.append((one, thread))
        return f"api:http://127.0.0.1:{one.server_port}/v1#chat", seen

    yield start
    for one, thread in running:
        one.shutdown()
        one.server_close()
        thread.join()


def knows(files):
    """Writes the second sentence of a pair if the dataset is named, else its own."""
    rows = map(json.loads, (files / "pairs.jsonl").read_text().splitlines())
    second = {row["premise"]: row["hypothesis"] for row in rows}

    def respond(prompt):
        for premise, hypothesis in second.items():
            if premise in prompt:
                return hypothesis if "PAIRS" in prompt else "Nothing of the kind."
        raise AssertionError(f"no premise in {prompt!r}")

    return respond


@pytest.fixture
def asked(server, files, tmp_path, monkeypatch):
    """A finished run on a server that knows the pairs, with a judge of its own."""
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.setenv("JUDGE_API_KEY", JUDGE_KEY)
    model, seen = server(knows(files))
    judge, judged = server(lambda prompt: "Yes (exact match)")
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dataset-name", "PAIRS", "--label-names", "no", "yes"]
    words += ["--judge", judge, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    return words, tmp_path / "out", seen, judged


def test_a_server_that_knows_the_set_by_name_is_found(asked):
    _, out, seen, judged = asked
    found = results(out)
    assert found["judge_llm"]["primary"]
    assert found["judge_llm"]["judge_version"].startswith("chat, llm-")
    assert found["judge_llm"]["verdict"] == "suspected"
    assert found["judge_local"]["n_exact"] == 12
    assert found["rouge_l_sign_flip"]["p_value"] == pytest.approx(2.0**-12)
    assert found["rouge_l_sign_flip"]["p_floor"] == pytest.approx(2.0**-12)
    # 12 guided and 12 general ones.
    assert len(seen) == 24
    assert all(body["temperature"] == 0 for _, body in seen)
    # Each server sees its own key.
    assert {headers["Authorization"] for headers, _ in seen} == {f"Bearer {KEY}"}
    assert {h["Authorization"] for h, _ in judged} == {f"Bearer {JUDGE_KEY}"}
    assert main(["verify", str(out)]) == 0


def test_a_reference_elsewhere_has_a_key_of_its_own_and_is_judged(
    server, files, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.setenv("REFERENCE_API_KEY", "sk-of-the-reference")
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    rows = [
        {"premise": f"{MEMBERS[i]} New.", "hypothesis": OTHERS[i]} for i in range(12)
    ]
    control = tmp_path / "new.jsonl"
    control.write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = knows(files)
    model, seen = server(
        lambda prompt: "It is unknown." if "New." in prompt else known(prompt)
    )
    reference, asked = server(lambda prompt: "Nothing of the kind.")

    def judges(prompt):
        case = prompt.split("Now this one")[1]
        is_copy = "unknown" not in case and "of the kind" not in case
        return "Yes (exact match)" if is_copy else "No"

    judge, judged = server(judges)
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dataset-name", "PAIRS", "--judge", judge, "--reference", reference]
    words += ["--control", str(control), "--out", str(tmp_path / "out")]
    prices = ["--price-in", "1", "--price-out", "1"]
    assert main([*words, *prices, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    # Guided completions of both sides, and the model's general ones.
    assert said.startswith("36 requests to send")
    assert "The reference: 24 requests to send" in said
    assert "The judge: at most 48 requests" in said
    assert not asked
    assert main(words) == 0
    row = results(tmp_path / "out")["judge_llm"]
    assert row["primary"] and row["reason"] == "reference may share it"
    assert (row["reference"]["n_copies"], row["reference"]["n_control"]) == (0, 12)
    assert (len(seen), len(asked), len(judged)) == (36, 24, 48)
    assert {h["Authorization"] for h, _ in asked} == {"Bearer sk-of-the-reference"}
    assert {h["Authorization"] for h, _ in seen} == {f"Bearer {KEY}"}
    assert all("Authorization" not in h for h, _ in judged)
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert main(words) == 0
    assert (len(seen), len(asked), len(judged)) == (36, 24, 48)


def test_a_refusal_of_the_reference_is_counted_and_ends_with_3(
    server, files, tmp_path, monkeypatch
):
    monkeypatch.delenv("API_KEY", raising=False)
    control = tmp_path / "new.jsonl"
    row = {"premise": "Nobody has read this.", "hypothesis": "It is new to all."}
    control.write_text(json.dumps(row) + "\n")
    refused = 400, {"error": {"message": "filtered"}}
    url, _ = server(lambda prompt: refused if MEMBERS[0] in prompt else "No idea.")
    model, _ = server(lambda prompt: "No idea.")
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--control", str(control), "--reference", url]
    assert main([*words, "--out", str(tmp_path / "out")]) == 3
    row = results(tmp_path / "out")["judge_local"]
    assert (row["n_refused"], row["reference"]["n_refused"]) == (0, 1)
    assert row["reference"]["n_instances"] == 11
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_changed_completion_is_found(asked, capsys):
    _, out, _, _ = asked
    lines = (out / "texts.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    row["guided"] = "Something else."
    lines[0] = json.dumps(row, ensure_ascii=False)
    (out / "texts.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["verify", str(out)]) == 3
    said = capsys.readouterr().out
    assert "texts.jsonl[0].rouge_l_guided is " in said
    assert "texts.jsonl[0].judge_local is " in said


def test_requests_that_are_refused_are_counted_and_end_with_3(
    server, files, tmp_path, monkeypatch
):
    monkeypatch.delenv("API_KEY", raising=False)
    respond = knows(files)

    def refuses(prompt):
        if prompt.startswith("Answer with"):
            return "1"
        if MEMBERS[0] in prompt:
            return 400, {"error": {"message": "filtered"}}
        return respond(prompt)

    model, _ = server(refuses)
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dataset-name", "PAIRS", "--out", str(tmp_path)]
    assert main(words) == 3
    found = results(tmp_path)
    assert found["judge_local"]["n_refused"] == 1
    assert found["rouge_l_sign_flip"]["n_left_out"] == 1
    assert main(["verify", str(tmp_path)]) == 0


def test_no_readable_judgement_is_no_verdict_and_ends_with_3(
    server, recorded, tmp_path, capsys
):
    judge, _ = server(lambda prompt: "Perhaps.")
    words = ["replicate", "--recorded", str(recorded), "--judge", judge]
    assert main([*words, "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().out
    assert "No verdict: the chat model judged none of the completions." in said
    assert "<svg" not in (tmp_path / "out" / "report.html").read_text()


def test_dry_run_knows_what_was_answered_and_what_a_judge_takes(asked, capsys):
    words, *_ = asked
    capsys.readouterr()
    prices = ["--price-in", "1", "--price-out", "2", "--compare", "cdd"]
    assert main([*words, *prices, "--cdd-samples", "2", "--dry-run"]) == 0
    said = capsys.readouterr().out
    # 24 completions are there; a greedy answer and two samples each, and four checks.
    assert f"{12 * 3 + 4} requests to send, 24 answered before" in said
    assert f"{40 * 100:,} new ones" in said
    # Each prompt of the judge holds up to 500 tokens of a completion.
    tokens = re.search(r"The judge: at most 12 requests, ([\d,]+) prompt", said)[1]
    assert 12 * 800 < int(tokens.replace(",", "")) < 12 * 1200
    assert "6,000 new ones, at most about 0.02" in said
