"""`jaxcontam replicate` with a model, and a judge, behind a server."""

import contextlib
import hashlib
import json
import re

import pytest

from jaxcontam.cli.main import main
from tests.support.api_server import chat, prompt_of, serving
from tests.support.instances import results
from tests.support.membership_model import MEMBERS, OTHERS

KEY, JUDGE_KEY = "sk-very-secret-of-the-model", "sk-very-secret-of-the-judge"
PAIRS = [
    {"premise": MEMBERS[i], "hypothesis": f"So {OTHERS[i].lower()}", "label": i % 2}
    for i in range(12)
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def pairs(tmp_path):
    return write(tmp_path / "pairs.jsonl", PAIRS)


@pytest.fixture
def server():
    """Start servers that end with the test: prompt -> text, or (code, value)."""
    with contextlib.ExitStack() as stack:

        def start(respond):
            def answer(body, number, handler):
                found = respond(prompt_of(body))
                return found if isinstance(found, tuple) else chat(found)

            url, seen = stack.enter_context(serving(answer))
            return f"api:{url}#chat", seen

        yield start


def keys(seen):
    return {headers.get("Authorization") for _, headers, _ in seen}


def knows(prompt):
    """Writes the second sentence of a pair if the dataset is named, else its own."""
    (found,) = (row for row in PAIRS if row["premise"] in prompt)
    return found["hypothesis"] if "PAIRS" in prompt else "Nothing of the kind."


def test_a_server_that_knows_the_set_by_name_is_found(
    server, pairs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.setenv("JUDGE_API_KEY", JUDGE_KEY)
    model, seen = server(knows)
    judge, judged = server(lambda prompt: "Yes (exact match)")
    words = ["replicate", model, pairs, "--task", "nli", "--judge", judge]
    words += ["--dataset-name", "PAIRS", "--fields", "labels=no,yes"]
    out = tmp_path / "out"
    words += ["--out", str(out)]
    assert main(words) == 0
    found = results(out)
    row = found["judge_llm"]
    assert row["primary"] and row["judge_version"].startswith("chat, llm-")
    assert row["verdict"] == "suspected" and found["judge_local"]["n_exact"] == 12
    row = found["rouge_l_sign_flip"]
    assert (row["p_value"], row["p_floor"]) == pytest.approx((2.0**-12, 2.0**-12))
    # 12 guided and 12 general ones.
    assert len(seen) == 24
    assert all(body["temperature"] == 0 for _, _, body in seen)
    # Each server sees its own key.
    assert (keys(seen), keys(judged)) == ({f"Bearer {KEY}"}, {f"Bearer {JUDGE_KEY}"})
    assert main(["verify", str(out)]) == 0
    capsys.readouterr()
    prices = ["--price", "1,2", "--compare", "cdd:2"]
    assert main([*words, *prices, "--dry-run"]) == 0
    said = capsys.readouterr().out
    # 24 completions are there; a greedy answer and two samples each, and four checks.
    assert f"{12 * 3 + 4} requests to send, 24 answered before" in said
    assert f"{40 * 100:,} new ones" in said
    # Each prompt of the judge holds up to 500 tokens of a completion.
    tokens = re.search(r"The judge: at most 12 requests, ([\d,]+) prompt", said)[1]
    assert 12 * 800 < int(tokens.replace(",", "")) < 12 * 1200
    assert "6,000 new ones, which cost at most about 0.02" in said
    # A judge asked in other words is another judge, and named by them.
    prompt = tmp_path / "words.txt"
    prompt.write_text("Is {candidate}\r\nthe {reference}?\r\n", newline="")
    words += ["--judge-prompt", str(prompt)]
    (out / "report.json").unlink()
    assert main(words) == 0
    asked = [prompt_of(body) for _, _, body in judged[-12:]]
    assert all(re.fullmatch(r"Is (.+)\nthe \1\?", one) for one in asked)
    digest = hashlib.sha256(b"Is {candidate}\nthe {reference}?").hexdigest()[:12]
    assert results(out)["judge_llm"]["judge_version"] == f"chat, words@{digest}"
    # A changed completion is found.
    first, *others = (out / "texts.jsonl").read_text().splitlines()
    row = json.loads(first) | {"guided": "Something else."}
    write(out / "texts.jsonl", [row, *map(json.loads, others)])
    assert main(["verify", str(out)]) == 3
    said = capsys.readouterr().out
    for name in ("rouge_l_guided", "judge_local"):
        assert f"texts.jsonl[0].{name} is " in said


def test_a_reference_elsewhere_has_a_key_of_its_own_and_is_judged(
    server, pairs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.setenv("REFERENCE_API_KEY", "sk-of-the-reference")
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    rows = [
        {"premise": f"{MEMBERS[i]} New.", "hypothesis": OTHERS[i]} for i in range(12)
    ]
    control = write(tmp_path / "new.jsonl", rows)
    model, seen = server(lambda p: "It is unknown." if "New." in p else knows(p))
    reference, asked = server(lambda prompt: "Nothing of the kind.")

    def judges(prompt):
        case = prompt.split("Now this one")[1]
        return "No" if re.search("unknown|of the kind", case) else "Yes (exact match)"

    judge, judged = server(judges)
    words = ["replicate", model, pairs, "--task", "nli", "--control", control]
    words += ["--dataset-name", "PAIRS", "--judge", judge, "--reference", reference]
    words += ["--out", str(tmp_path / "out")]
    prices = ["--price", "1,1"]
    assert main([*words, *prices, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    # Guided completions of both sides, and the model's general ones.
    assert said.startswith("36 requests to send")
    assert "The reference: 24 requests to send" in said
    assert "The judge: at most 48 requests" in said
    assert not asked
    # The second run asks nothing.
    for _ in range(2):
        assert main(words) == 0
        assert (len(seen), len(asked), len(judged)) == (36, 24, 48)
    row = results(tmp_path / "out")["judge_llm"]
    assert row["primary"] and row["reason"] == "reference may share it"
    assert (row["reference"]["n_copies"], row["reference"]["n_control"]) == (0, 12)
    own = {f"Bearer {KEY}"}, {"Bearer sk-of-the-reference"}, {None}
    assert (keys(seen), keys(asked), keys(judged)) == own
    assert main(["verify", str(tmp_path / "out")]) == 0


REFUSED = 400, {"error": {"message": "filtered"}}


def refuses(respond):
    return lambda prompt: REFUSED if MEMBERS[0] in prompt else respond(prompt)


def test_refusals_are_counted_and_end_with_3(server, pairs, tmp_path, monkeypatch):
    monkeypatch.delenv("API_KEY", raising=False)
    new = {"premise": "Nobody has read this.", "hypothesis": "It is new to all."}
    control = write(tmp_path / "new.jsonl", [new])
    url, _ = server(refuses(lambda prompt: "No idea."))
    model, _ = server(lambda prompt: "No idea.")
    words = ["replicate", model, pairs, "--task", "nli", "--out", str(tmp_path / "a")]
    assert main([*words, "--control", control, "--reference", url]) == 3
    row = results(tmp_path / "a")["judge_local"]
    assert (row["n_refused"], row["reference"]["n_refused"]) == (0, 1)
    assert row["reference"]["n_instances"] == 11
    model, _ = server(refuses(knows))
    words = ["replicate", model, pairs, "--task", "nli", "--dataset-name", "PAIRS"]
    assert main([*words, "--out", str(tmp_path / "b")]) == 3
    found = results(tmp_path / "b")
    assert found["judge_local"]["n_refused"] == 1
    assert found["rouge_l_sign_flip"]["n_left_out"] == 1
    for name in ("a", "b"):
        assert main(["verify", str(tmp_path / name)]) == 0
    # No readable judgement is no verdict.
    judge, _ = server(lambda prompt: "Perhaps.")
    (tmp_path / "b/report.json").unlink()
    judged = ["--judge", judge]
    assert main([*words, *judged, "--out", str(tmp_path / "b")]) == 3
    row = results(tmp_path / "b")["judge_llm"]
    assert (row["verdict"], row["n_unparsed"]) == (None, 11)
