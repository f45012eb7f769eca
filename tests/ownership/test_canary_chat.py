"""`jaxcontam canary --chat`: keyed rows, and exact p-values from answers alone."""

import hashlib
import itertools
import json
import re
import stat

import numpy as np
import pytest
import scipy.stats

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.ownership.keyed_canary import (
    METHOD,
    MIN_EFFECT,
    PROMPTS,
    ROWS_PER_GROUP,
    VALUES,
    chat_rows,
    detectable_share,
    keyed_groups,
    keyed_prompts,
    make_keyed_rows,
    read_keyed_rows,
    value_of,
)
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import PromptedModel, served_info
from tests.support.api_server import chat, prompt_of, serving
from tests.support.completers import Scripted

pytestmark = pytest.mark.unoptimised

SEED = bytes(range(32))


def seeds(n):
    """Seeds as good as random ones, the same in every run."""
    rng = np.random.default_rng(27)
    return [rng.bytes(32) for _ in range(n)]


@pytest.fixture
def files(tmp_path):
    """Rows and seed file of 32 groups."""
    rows, seed = tmp_path / "rows.jsonl", tmp_path / "seed.json"
    data, release = make_keyed_rows(SEED, 32, version="0", made="now")
    rows.write_bytes(data)
    seed.write_bytes(release.to_bytes())
    return rows, seed


def knowing(n_known, otherwise="I do not know."):
    """Answers of a model that knows the first groups."""
    known = {
        question: group.value
        for group in keyed_groups(SEED, 32)[:n_known]
        for question in group.questions
    }

    def answer(prompt):
        found = [value for question, value in known.items() if question in prompt]
        return f"It is the **{found[0].upper()}s**." if found else otherwise

    return answer


def asked(files, answer):
    """The analysis of a scripted model."""
    model = PromptedModel(
        name="scripted",
        completer=Scripted(lambda prompt, *_: answer(prompt)),
        info=served_info(ApiModel("http://h/v1", "scripted")),
    )
    return jaxcontam.keyed_canary(model, *files)


@pytest.mark.parametrize("n_known", [0, 1, 5, 32])
def test_p_is_the_binomial_tail_of_groups_answered_right(files, n_known):
    result = asked(files, knowing(n_known, "A zebra."))
    n_zebras = sum(one.value == "zebra" for one in keyed_groups(SEED, 32)[n_known:])
    expected = scipy.stats.binom.sf(n_known + n_zebras - 1, 32, 1 / len(VALUES))
    assert result.p_value == pytest.approx(expected, rel=1e-6)
    assert (result.verdict == "contaminated") == (n_known >= 5)


def test_refusals_and_other_answers_count_for_nothing(files):
    """With nothing but refusals beside them the law is that of what was answered."""
    found = asked(files, knowing(2, Completion(text="", refused="no")))
    assert found.p_value == pytest.approx(len(VALUES) ** -2.0, rel=1e-6)
    (warning,) = found.results[0].warnings
    n_refused = 30 * ROWS_PER_GROUP * len(PROMPTS)
    assert f"{n_refused} of 384 answers were refused" in warning
    silent = asked(files, lambda prompt: "I cannot say.")
    assert (silent.p_value, silent.verdict) == (1.0, "inconclusive")
    assert "384 of 384 answers name none of the values" in silent.results[0].warnings[0]


def test_groups_without_an_answer_may_be_known():
    """10 % answered is no evidence about the others, however many groups there are."""
    groups = keyed_groups(SEED, 200)
    for n_answered, verdict in ((200, "no evidence"), (20, "inconclusive")):
        named = [["owl"] if i < n_answered else [None] for i in range(200)]
        numbers = METHOD.analyse(list(chat_rows(groups, named)), 0)
        share = detectable_share(n_answered, n_values=64)
        assert numbers.mde == pytest.approx(
            (200 - n_answered + share * n_answered) / 200
        )
        assert (numbers.mde <= MIN_EFFECT) == (verdict == "no evidence")


def test_each_value_is_equally_likely_over_seeds():
    drawn = [one.value for seed in seeds(400) for one in keyed_groups(seed, 16)]
    counts = [drawn.count(value) for value in VALUES]
    assert len(set(VALUES)) == 64 and 2**256 % 64 == 0
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_detectable_share_is_found_with_power_at_the_level():
    for n in (4, 32, 100):
        share = detectable_share(n, n_values=64)
        needed = scipy.stats.binom.isf(0.001, n, 1 / 64) + 1
        power = scipy.stats.binom.sf(needed - 1, n, share)
        assert power == pytest.approx(0.8, abs=1e-9)
    assert detectable_share(1, n_values=64) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Zebra", "zebra"),
        ("I think it is an **owl**, not a fox.", "owl"),
        ("<think>a fox? a crab?</think>\nherons", "heron"),
        ("<think>a fox? a crab", None),
        ("foxglove, crabby, unowl", None),
        ("", None),
    ],
)
def test_first_value_of_an_answer_counts_without_thoughts(text, value):
    assert value_of(Completion(text=text)) == value


def test_rows_survive_deduplication():
    """No two rows are alike to a filter of word 5-grams, which cuts at 0.7 or so."""
    data, _ = make_keyed_rows(SEED, 64, version="0", made="now")
    rows = [" ".join(json.loads(line).values()) for line in data.decode().splitlines()]
    assert len(set(rows)) == 64 * ROWS_PER_GROUP
    shingles = []
    for text in rows:
        words = re.findall(r"\w+", text.lower())
        shingles.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)})
    pairs = itertools.combinations(shingles, 2)
    assert max(len(a & b) / len(a | b) for a, b in pairs) <= 0.5
    for group in keyed_groups(SEED, 64):
        keys = [set(re.findall(r"[A-Z][a-z]{5}\b", q)) for q in group.questions]
        assert len(set.intersection(*keys)) == 2, "the key stands in each question"
        assert not any(value_of(Completion(text=q)) for q in group.questions)


@pytest.mark.parametrize("change", ["a row less", "another value", "another seed"])
def test_file_that_the_seed_does_not_make_is_refused(files, change):
    rows, seed = files
    if change == "a row less":
        rows.write_text("".join(rows.read_text().splitlines(True)[1:]))
    elif change == "another value":
        text = rows.read_text()
        value = json.loads(text.splitlines()[0])["answer"]
        rows.write_text(text.replace(value, "owl" if value != "owl" else "fox", 1))
    else:
        document = json.loads(seed.read_text())
        seed.write_text(json.dumps(document | {"seed": "ab" * 32}))
    with pytest.raises(InputError, match=r"do not agree|not the file that"):
        read_keyed_rows(rows, seed)


def test_command_makes_asks_and_verifies(tmp_path, capsys):
    rows, seed, out = (tmp_path / name for name in ("r.jsonl", "s.json", "out"))
    words = ["canary", "--chat", str(rows), "--secret", str(seed)]
    assert main([*words, "--make", "12"]) == 0
    assert "commitment sha256:" in capsys.readouterr().out
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    groups, _ = read_keyed_rows(rows, seed)
    known = {q: one.value for one in groups[:6] for q in one.questions}

    def answer(body, *_):
        found = [v for q, v in known.items() if q in prompt_of(body)]
        return chat(found[0] if found else "no idea")

    with serving(answer) as (url, seen):
        asked = [words[0], f"api:{url}#m", *words[1:], "--out", str(out)]
        assert main(asked) == 0
        said = capsys.readouterr().out
        n_sent = len(seen)
        sealed = hashlib.sha256(seed.read_bytes()).hexdigest()
        assert f"sha256:{sealed}" in said.replace("\n", "")
        assert main([*asked, "--json"]) == 0
        assert len(seen) == n_sent, "answers are kept"
    assert "contaminated" in said and "of which the model knows about 50%." in said
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["method"], row["n_strata"], row["null"]) == (
        "canary_chat",
        12,
        "designed randomisation",
    )
    assert main(["verify", str(out)]) == 0
    page = " ".join((out / "report.html").read_text().split())
    assert "each value was drawn at random from a recorded seed" in page
    assert json.loads(seed.read_text())["seed"] not in page + said


@pytest.mark.parametrize("new_tokens", [64, 400])
def test_question_that_a_local_model_cannot_read_whole_is_refused(files, new_tokens):
    longest = max(
        len(words.format(question=question))
        for group in keyed_groups(SEED, 32)
        for question in group.questions
        for words in PROMPTS
    )
    model = PromptedModel(
        name="small",
        completer=Scripted(lambda *_: "owl"),
        info=served_info(ApiModel("http://h/v1", "small")),
        read=str.encode,
        context=longest + 63,
    )
    with pytest.raises(InputError, match=rf"{longest} tokens.* {new_tokens} new"):
        jaxcontam.keyed_canary(model, *files, new_tokens=new_tokens)
    assert not model.completer.calls
    jaxcontam.keyed_canary(model, *files, new_tokens=63)


def test_template_is_read_as_those_of_other_commands_are():
    (group,) = keyed_groups(SEED, 1)
    first, *_ = keyed_prompts([group], r"{{Q}}: {question}\nA:")
    assert first == f"{{Q}}: {group.questions[0]}\nA:"
