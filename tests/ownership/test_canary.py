"""`jaxcontam canary`: exact p of secrets among twins, and of keys by answers alone."""

import hashlib
import itertools
import json
import math
import re
import stat

import numpy as np
import pytest
import scipy.stats

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.ownership.canary import (
    alone_numbers,
    canary_results,
    canary_rows,
    draw_sequences,
    exposure,
)
from jaxcontam.ownership.flags import MIN_KNOWN
from jaxcontam.ownership.keyed_canary import (
    METHOD,
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
from jaxcontam.proof.verdict import decide
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import PromptedModel, served_info
from tests.support.api_server import chat, prompt_of, serving
from tests.support.completers import Scripted

pytestmark = pytest.mark.unoptimised

DIGEST = "sha256:" + "5a" * 32
SEED = bytes(range(32))


def results_of(loglik, n_secrets, seed=0):
    return canary_results(
        np.asarray(loglik, float), n_secrets, name="s", digest=DIGEST, seed=seed
    )


@pytest.mark.parametrize(("better", "equal"), [(0, 0), (3, 0), (0, 2), (4, 5), (9, 0)])
def test_pvalue_and_exposure_are_those_of_the_rank(better, equal):
    held_out = np.r_[np.full(better, 2.0), np.full(equal, 1.0), np.zeros(9 - better)]
    numbers = alone_numbers([np.r_[1.0, held_out]], 0)
    n, rank = 1 + len(held_out), 1 + better + equal
    assert numbers.p_value == pytest.approx(rank / n, rel=1e-12)
    assert numbers.p_floor == pytest.approx(1 / n)
    assert numbers.exposure == pytest.approx(math.log2(n) - math.log2(rank))
    assert exposure(numbers.p_value, n) == pytest.approx(-math.log2(numbers.p_value))
    # A single secret has one row, and is the joint test.
    (result,), (evidence,) = results_of(np.r_[1.0, held_out], 1)
    assert result.numbers.p_value == numbers.p_value
    assert evidence.scores.shape == (1, n)


def test_no_held_out_sequence_serves_two_rows_of_the_joint_test():
    held_out = np.arange(100.0, 123.0)

    def rows(values, seed=3):
        return canary_rows(np.arange(4.0), values, seed=seed, content_digest=DIGEST)

    joint, alone = rows(held_out)
    dealt = np.concatenate([row[1:] for row in joint])
    assert sorted(dealt) == sorted(held_out)
    assert sorted(map(len, joint)) == [6, 7, 7, 7]
    assert [row[0] for row in joint] == [0.0, 1.0, 2.0, 3.0]
    for k, row in enumerate(alone):
        np.testing.assert_array_equal(row, [k, *held_out])
    # The deal follows the seed, and not the scores.
    again, other = rows(held_out**2)[0], rows(held_out, seed=4)[0]
    np.testing.assert_array_equal(np.concatenate([r[1:] for r in again]), dealt**2)
    assert not np.array_equal(np.concatenate([r[1:] for r in other]), dealt)


def test_learned_secrets_are_called_contaminated_and_the_others_secondary():
    results, _ = results_of([*[50.0] * 3, *np.random.default_rng(0).normal(size=60)], 3)
    joint, *alone = decide(results, min_effect=5.0)
    assert joint.verdict == "contaminated"
    assert joint.numbers.p_value == pytest.approx(21.0**-3)
    assert [r.benchmark for r in alone] == ["s:1", "s:2", "s:3"]
    assert all(r.verdict is None and not r.primary for r in alone)


@pytest.mark.parametrize(
    ("kind", "pattern", "n_letters"),
    [
        ("words", r"id ([a-z]{6} ){7}[a-z]{6}", 5),
        ("digits", r"id (\d{4} ){11}\d{4}", 10),
    ],
)
def test_drawn_sequences_differ_have_one_form_and_uniform_places(
    kind, pattern, n_letters
):
    drawn = draw_sequences(6_000, kind=kind, prefix="id ")
    assert len(set(drawn)) == 6_000
    assert all(re.fullmatch(pattern, text) for text in drawn)
    letters = [text[3:].replace(" ", "")[5] for text in drawn]
    counts = np.unique(letters, return_counts=True)[1]
    assert len(counts) == n_letters
    # Randomness of the system, so no fixed outcome: fails once in 10^9 runs.
    assert scipy.stats.chisquare(counts).pvalue > 1e-9


def test_files_are_made_secret_and_the_command_keeps_them_to_itself(
    pulse, tmp_path, capsys
):
    secret, held_out, out = tmp_path / "s.txt", tmp_path / "h.txt", tmp_path / "out"
    files = ["--secret", str(secret), "--held-out", str(held_out)]
    assert main(["canary", "--make", "3", "--n-held-out", "31", *files]) == 0
    said = capsys.readouterr().out
    lines = []
    for path, n in ((secret, 3), (held_out, 31)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert f"{path}: " in said
        assert f"commitment sha256:{digest}\n" in said
        lines += path.read_text().splitlines()
        assert len(path.read_text().splitlines()) == n
    assert not any(line in said for line in lines)
    held_out.write_text("\n" + held_out.read_text())
    words = ["canary", str(pulse / "model"), *files, "--out", str(out)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count(" bits ") == 3
    assert "\nh: 1 blank line left out\n" in said
    written = (out / "report.json").read_text() + (out / "report.html").read_text()
    assert not any(line in said + written for line in lines)
    document = json.loads((out / "report.json").read_text())
    joint, *alone = document["results"]
    assert (joint["method"], joint["n_strata"], joint["primary"]) == ("canary", 3, True)
    assert joint["null"] == "designed randomisation"
    sealed = [
        f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in (secret, held_out)
    ]
    assert [one["sha256"] for one in joint["commitments"]] == sealed
    assert all(digest in said for digest in sealed)
    assert [row["n_orders"] for row in alone] == [31] * 3
    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["results"]
    for row in [*document["results"], *again]:
        row.pop("tokens_scored"), row.pop("cached_tokens")
    assert again == document["results"]


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


def scripted(answer, **fields):
    """A model whose answers are written down."""
    info = served_info(ApiModel("http://h/v1", "scripted"))
    completer = Scripted(lambda prompt, *_: answer(prompt))
    return PromptedModel(name="scripted", completer=completer, info=info, **fields)


def asked(files, answer):
    """The analysis of a scripted model."""
    return jaxcontam.keyed_canary(scripted(answer), *files)


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
    for n in (200, 20):
        named = [["owl"] if i < n else [None] for i in range(200)]
        mde = METHOD.analyse(list(chat_rows(groups, named)), 0).mde
        share = detectable_share(n, n_values=64)
        assert mde == pytest.approx((200 - n + share * n) / 200)
        assert (mde <= MIN_KNOWN) == (n == 200)
        # Found with power at the level.
        needed = scipy.stats.binom.isf(0.001, n, 1 / 64) + 1
        power = scipy.stats.binom.sf(needed - 1, n, share)
        assert power == pytest.approx(0.8, abs=1e-9)
    assert detectable_share(1, n_values=64) is None


def test_each_value_is_equally_likely_over_seeds():
    # Seeds as good as random ones, the same in every run.
    rng = np.random.default_rng(27)
    seeds = (rng.bytes(32) for _ in range(400))
    drawn = [one.value for seed in seeds for one in keyed_groups(seed, 16)]
    counts = [drawn.count(value) for value in VALUES]
    assert len(set(VALUES)) == 64 and 2**256 % 64 == 0
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


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


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows.jsonl", lambda text: text[text.index("\n") + 1 :]),
        ("rows.jsonl", lambda text: text.replace('"answer": "', '"answer": "x', 1)),
        ("seed.json", lambda text: re.sub('"seed": "..', '"seed": "ab', text)),
    ],
)
def test_file_that_the_seed_does_not_make_is_refused(files, name, change):
    path = files[0].with_name(name)
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(InputError, match=r"do not agree|not the file that"):
        read_keyed_rows(*files)


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
    assert "contaminated" in said and "the model knows about 50% of them." in said
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["method"], row["n_strata"]) == ("canary_chat", 12)
    assert row["null"] == "designed randomisation"
    assert main(["verify", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert json.loads(seed.read_text())["seed"] not in page + said


@pytest.mark.parametrize("new_tokens", [64, 400])
def test_question_that_a_local_model_cannot_read_whole_is_refused(files, new_tokens):
    longest = max(map(len, keyed_prompts(keyed_groups(SEED, 32), None)))
    model = scripted(lambda _: "owl", read=str.encode, context=longest + 63)
    with pytest.raises(InputError, match=rf"{longest} tokens.* {new_tokens} new"):
        jaxcontam.keyed_canary(model, *files, new_tokens=new_tokens)
    assert not model.completer.calls
    jaxcontam.keyed_canary(model, *files, new_tokens=63)
