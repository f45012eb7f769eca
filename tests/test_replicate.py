"""`jaxcontam replicate`: local models, served models, recorded completions, files."""

import codecs
import csv
import http.server
import json
import re
import threading

import pytest

from jaxcontam.cli import main
from jaxcontam.report.texts import ASKED, read_text_rows
from tests.membership_model import MEMBERS, OTHERS, save_overfitted
from tests.page_laws import check_page

pytestmark = pytest.mark.unoptimised

HOSTILE = "<script>alert('x')</script>"
KEY = "sk-very-secret-of-the-model"
JUDGE_KEY = "sk-very-secret-of-the-judge"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a model that knows MEMBERS by heart."""
    out = tmp_path_factory.mktemp("model")
    save_overfitted(out)
    return str(out)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    pairs = [
        {
            "premise": f"{MEMBERS[i]} {HOSTILE}",
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


def report_of(out):
    return json.loads((out / "report.json").read_text())


def results(out):
    return {row["method"]: row for row in report_of(out)["results"]}


def test_lines_known_by_heart_are_copied_and_others_are_not(model, files, tmp_path):
    common = ["--task", "plain", "--k", "8", "--seed", "1"]
    for name, verdict in (("seen", "suspected"), ("unseen", "no evidence")):
        out = tmp_path / name
        words = ["replicate", model, str(files / f"{name}.txt"), *common]
        assert main([*words, "--out", str(out)]) == 0
        row = results(out)["judge_local"]
        assert row["verdict"] == verdict
        assert row["primary"]
        assert main(["verify", str(out)]) == 0
    copies = results(tmp_path / "seen")["judge_local"]
    assert copies["n_exact"] + copies["n_near"] >= 6


def test_a_control_is_asked_the_same_way_and_enters_the_verdict(model, files, tmp_path):
    words = ["replicate", model, str(files / "seen.txt"), "--task", "plain"]
    words += ["--k", "8", "--control", str(files / "unseen.txt")]
    assert main([*words, "--out", str(tmp_path)]) == 0
    row = results(tmp_path)["judge_local"]
    assert row["n_control"] == 8
    assert row["p_control"] < 0.05
    arms = [text["arm"] for text in read_text_rows(tmp_path, ASKED)]
    assert arms.count("partition") == arms.count("control") == 8
    assert main(["verify", str(tmp_path)]) == 0


def test_copies_that_the_control_has_as_well_prove_nothing(model, files, tmp_path):
    half = len(MEMBERS) // 2
    for name, texts in (("a", MEMBERS[:half]), ("b", MEMBERS[half:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    words = ["replicate", model, str(tmp_path / "a.txt"), "--task", "plain"]
    words += ["--control", str(tmp_path / "b.txt"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    row = results(tmp_path / "out")["judge_local"]
    assert row["n_exact"] >= 1
    assert row["verdict"] == "no evidence"
    # They stand on the page, too.
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Copies in the control" in page
    assert MEMBERS[half].split()[-1] in page.split("Copies in the control")[1]


def test_a_control_of_the_same_instances_is_refused(model, files, tmp_path, capsys):
    seen = str(files / "seen.txt")
    words = ["replicate", model, seen, "--task", "plain", "--control", seen]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "of its instances are those of" in capsys.readouterr().err


def test_a_rerun_asks_nothing_and_reports_the_same(model, files, tmp_path, monkeypatch):
    words = ["replicate", model, str(files / "seen.txt"), "--task", "plain"]
    words += ["--k", "4", "--out", str(tmp_path)]
    assert main(words) == 0
    first = report_of(tmp_path)["results"]

    def asks(_, prompts, *__, **___):
        assert not prompts
        return iter(())

    monkeypatch.setattr("jaxcontam.scoring.completions.continuations", asks)
    assert main(words) == 0
    assert report_of(tmp_path)["results"] == first


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
    _, out, seen, _ = asked
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
    assert main(["verify", str(out)]) == 0


def test_a_rerun_pays_for_nothing(asked):
    words, _, seen, judged = asked
    before = len(seen), len(judged)
    assert main(words) == 0
    assert (len(seen), len(judged)) == before


def test_each_server_sees_its_own_key_and_no_file_has_one(asked):
    _, out, seen, judged = asked
    assert {headers["Authorization"] for headers, _ in seen} == {f"Bearer {KEY}"}
    assert {h["Authorization"] for h, _ in judged} == {f"Bearer {JUDGE_KEY}"}
    for path in out.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert KEY.encode() not in data
            assert JUDGE_KEY.encode() not in data


def test_a_judge_elsewhere_never_gets_the_key_of_the_model(
    server, files, tmp_path, monkeypatch
):
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    model, _ = server(knows(files))
    judge, judged = server(lambda prompt: "No")
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dataset-name", "PAIRS", "--judge", judge, "--k", "2"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    assert judged
    assert all("Authorization" not in headers for headers, _ in judged)


def test_the_page_escapes_what_the_file_says(asked):
    _, out, _, _ = asked
    page = (out / "report.html").read_text()
    assert HOSTILE not in page
    check_page(page)
    assert "&lt;script&gt;" in page


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


def test_the_page_can_be_made_again(asked):
    _, out, _, _ = asked
    before = (out / "report.html").read_text()
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == before


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


def test_dry_run_sends_nothing_and_states_a_price(server, files, tmp_path, capsys):
    model, seen = server(lambda prompt: pytest.fail("asked"))
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dry-run", "--price-in", "1", "--price-out", "2"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "24 requests to send" in said
    assert "to pay" in said
    assert not seen
    assert not (tmp_path / "out").exists()


def test_a_budget_stops_before_it_is_exceeded_and_loses_nothing(
    server, files, tmp_path, capsys
):
    model, seen = server(knows(files))
    words = ["replicate", model, str(files / "pairs.jsonl"), "--task", "nli"]
    words += ["--dataset-name", "PAIRS", "--out", str(tmp_path)]
    words += ["--price-in", "1", "--price-out", "1000000", "--new-tokens", "10"]
    words += ["--concurrency", "1"]
    # Each answer has 10 new tokens, which cost 10.
    assert main([*words, "--budget", "55"]) == 2
    assert "budget" in capsys.readouterr().err
    assert len(seen) == 5
    assert main([*words, "--budget", "1000"]) == 0
    assert len(seen) == 24


@pytest.fixture
def recorded(tmp_path):
    """Completions in the layout that was released: two copies and others."""
    path = tmp_path / "set_test.csv"
    names = "text label first_piece second_piece generated_guided_completion "
    names += "generated_general_completion annotator1_evaluation"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names.split())
        writer.writeheader()
        for i in range(10):
            first, second = f"Piece {i} says that", f"number {i} is {OTHERS[i].lower()}"
            writer.writerow(
                {
                    "text": f"{first} {second}",
                    "label": i,
                    "first_piece": first,
                    "second_piece": second,
                    "generated_guided_completion": second if i < 2 else "no idea",
                    "generated_general_completion": "no idea at all",
                    "annotator1_evaluation": "Yes (exact match)" if i < 2 else "No",
                }
            )
    return path


def test_recorded_completions_are_judged_without_a_model(recorded, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["replicate", "--recorded", str(recorded), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Suspected: 2 of 10 completions are copies" in said
    assert "contaminated needs a control" in said
    assert "BLEURT was left out" in said
    found = results(out)
    assert found["judge_local"]["n_exact"] == 2
    assert found["judge_local"]["agreement"] == 1.0
    assert found["judge_local"]["agreement_of_always_no"] == 0.8
    assert report_of(out)["model"] is None
    assert main(["verify", str(out)]) == 0


def test_a_sheet_that_people_filled_in_is_read_back(recorded, tmp_path):
    out = tmp_path / "out"
    words = ["replicate", "--recorded", str(recorded), "--out", str(out)]
    assert main(words) == 0
    # Without the mark a spreadsheet takes its texts for those of an older encoding.
    assert (out / "annotate.csv").read_bytes().startswith(codecs.BOM_UTF8)
    with (out / "annotate.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    # Blind: neither the arm nor a judge's label stands in it.
    assert not any("judge" in name or "arm" in name for name in rows[0])
    (column,) = [name for name in rows[0] if "label" in name or "annotator" in name][:1]
    for row in rows:
        row[column] = "no"
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert main([*words, "--annotated", str(filled)]) == 0
    found = results(out)
    assert found["judge_human"]["n_exact"] == 0
    assert found["judge_local"]["agreement"] == 0.8
    assert main(["verify", str(out)]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["replicate"], "no model and benchmark"),
        (["replicate", "M", "--recorded", "f.csv"], "--recorded asks no model"),
        (["replicate", "M", "b.txt", "--compare", "cda"], "did you mean 'cdd'?"),
        (["replicate", "M", "b.txt", "--judge", "gpt"], "must be local or api:"),
        (["replicate", "M", "b.txt", "--budget", "5"], "--budget needs --price-in"),
        (["replicate", "M", "b.txt", "--k", "0"], "--k must be at least 1"),
        (["replicate", "M", "b.txt", "--first-field", "a"], "go together"),
        (["replicate", "M", "nowhere.txt"], "no such file"),
        (["replicate", "--recorded", "nowhere.csv"], "nowhere.csv"),
        (["replicate", "--recorded", "f.csv", "--k", "9"], "--k does not go with"),
        (["replicate", "--recorded", "f.csv", "--stop", "x"], "--stop does not go"),
    ],
)
def test_mistakes_are_told_in_one_line(words, says, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


def test_no_readable_judgement_is_no_verdict_and_ends_with_3(
    server, recorded, tmp_path, capsys
):
    judge, _ = server(lambda prompt: "Perhaps.")
    words = ["replicate", "--recorded", str(recorded), "--judge", judge]
    assert main([*words, "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().out
    assert "No verdict: the chat model judged none of the completions." in said
    assert "<svg" not in (tmp_path / "out" / "report.html").read_text()


def test_half_a_character_is_refused_before_anything_is_asked(server, tmp_path, capsys):
    url, seen = server(lambda prompt: pytest.fail("asked"))
    path = tmp_path / "half.jsonl"
    path.write_text('{"text": "One. Two \\ud83d", "label": "a"}\n' * 2)
    assert main(["replicate", url, str(path), "--out", str(tmp_path / "out")]) == 2
    assert "half.jsonl:1: unpaired surrogate" in capsys.readouterr().err
    assert not seen


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


@pytest.mark.parametrize("flag", ["--bleurt", "--embedding-model", "--annotated"])
def test_what_is_needed_last_is_opened_before_anything_is_paid(
    flag, server, files, tmp_path
):
    url, seen = server(lambda prompt: pytest.fail("asked"))
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["replicate", url, str(files / "pairs.jsonl"), "--task", "nli"]
    assert main([*words, flag, str(empty), "--out", str(tmp_path / "out")]) == 2
    assert not seen


def test_measures_of_two_instructions_refuse_completions_of_one(
    recorded, tmp_path, capsys
):
    rows = list(csv.DictReader(recorded.read_text().splitlines()))
    one = tmp_path / "one.csv"
    with one.open("w", newline="") as file:
        names = [name for name in rows[0] if "general" not in name]
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    words = ["replicate", "--recorded", str(one), "--out", str(tmp_path / "out")]
    assert main([*words, "--bleurt", str(tmp_path)]) == 2
    assert "has completions of one" in capsys.readouterr().err
    assert main(words) == 0
    # Measured all the same, so the closest can stand first.
    assert read_text_rows(tmp_path / "out", ASKED)[0]["rouge_l_guided"] == 1
    assert "exact, ROUGE-L 1.00" in (tmp_path / "out" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_file_in_the_place_of_the_sheet_is_left_alone(recorded, tmp_path, capsys):
    words = ["replicate", "--recorded", str(recorded), "--out", str(tmp_path)]
    for text in ("my notes", "id,reference,candidate,annotator1\nx,a,b,no\n"):
        (tmp_path / "annotate.csv").write_text(text)
        assert main(words) == 0
        assert (tmp_path / "annotate.csv").read_text() == text
        assert "annotate-2.csv" in capsys.readouterr().err
        assert (tmp_path / "annotate-2.csv").exists()


def test_samples_of_a_base_model_end_where_its_completions_do(model, tmp_path):
    lines = [*MEMBERS[:3], "short"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    words = ["replicate", model, str(tmp_path / "lines.txt"), "--task", "plain"]
    words += ["--compare", "cdd", "--cdd-samples", "1", "--k", "2", "--new-tokens", "8"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")
    assert 'stop=["\\n"]' in found["cdd"]["setting"]
    assert any(
        w.startswith("1 of 4 instances are empty or too short")
        for w in found["judge_local"]["warnings"]
    )
