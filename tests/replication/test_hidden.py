"""What is hidden, words, options or files, and what it is compared with."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.answer_options import Item, read_items
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.replication.design import plan_replication
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.hidden import (
    MASK,
    TS_GUESSING_VERSION,
    file_path,
    hidden_option,
    hidden_word,
    rate_by_chance,
    read_issues,
    ts_guessing_option,
    ts_guessing_word,
)
from jaxcontam.replication.run import ask
from jaxcontam.scoring.completer import Completion, is_answer, readings
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.prompted_model import PromptedModel
from jaxcontam.stats.proportions import rate_test
from tests.support.completers import Scripted, comparison_inputs
from tests.support.instances import instance

OPTIONS = ("a red fox", "some green tea", "an old clock", "two wet shoes")


def ask_words(instances, completer):
    return ts_guessing_word(comparison_inputs(completer, instances=instances))


def ask_options(items, completer):
    return ts_guessing_option(comparison_inputs(completer, items=items))


def item(number=1, answer=0, options=OPTIONS):
    lines = [part for i in range(len(options)) for part in ("\n- ", i)]
    parts = (f"{number}. What barks?", *lines)
    known = {"number": number, "parts": parts, "answer": answer}
    return Item(options=tuple(options), sources=tuple(options), **known)


def hidden_in(text, prompt):
    """What a prompt hides of a text that the model knows."""
    before, after = prompt.split(MASK)[-2:]
    before = before.split("\n\nText: ")[-1]
    after = after.split("\n\nWord:")[0]
    assert text.startswith(before) and text.endswith(after)
    return text[len(before) : len(text) - len(after)]


def test_a_hidden_word_is_whole_of_four_letters_and_stands_once():
    text = "The cart of art: an art critic saw the cart start"
    for seed in range(40):
        start, end = hidden_word(text, seed=seed)
        # Not `cart`, which stands twice, nor `art`, which `cart` also holds.
        assert text[start:end] in ("critic", "start")
    text = "Seven purple elephants quietly danced around another broken carousel"
    chosen = {hidden_word(text, seed=seed) for seed in range(50)}
    assert len(chosen) > 3
    assert hidden_word(text, seed=3) == hidden_word(text, seed=3)
    for text in (
        # Function words and numbers, and a text that holds the mask.
        "There were 12345 of those, which they would never have; 2nd_one ABC",
        f"BERT fills {MASK} with likely tokens",
    ):
        assert hidden_word(text, seed=0) is None


def test_the_question_of_a_pair_is_masked_and_else_the_whole_text():
    pair = instance("purple elephants", "danced quietly", cut="pair", index=4)
    completer = Scripted(lambda *_: "")
    _, rows = ask_words(
        [pair, instance("or so it is", "elephants", index=7)], completer
    )
    assert [row["index"] for row in rows] == [4, 7]
    assert rows[1]["hidden"] == "elephants"
    first, second = completer.calls[0]["prompts"]
    assert "danced" not in first and MASK in first
    assert f"Text: or so it is {MASK}\n" in second


def test_a_model_that_knows_the_texts_finds_each_word_and_another_none():
    letters = np.random.default_rng(0).choice(list("abcdefghijklmnop"), (20, 9, 7))
    known = [" ".join(map("".join, words)) for words in letters]

    def knows(prompt, *_):
        # The text that has all words of the prompt but one.
        text = max(known, key=lambda t: len(set(t.split()) & set(prompt.split())))
        return f"**{hidden_in(text, prompt).upper()}**."

    instances = [instance(text, "", index=i) for i, text in enumerate(known)]
    result, rows = ask_words(instances, Scripted(knows))
    assert (result.n_found, result.rate, result.chance) == (20, 1.0, 0.0)
    assert all(row["rouge_l"] == 1.0 for row in rows)
    assert result.setting == TS_GUESSING_VERSION
    other, _ = ask_words(instances, Scripted(lambda *_: "the"))
    assert (other.n_found, other.rate) == (0, 0.0)
    assert other.verdict is None and other.method == "ts_guessing_word"


def test_the_rate_by_chance_is_that_of_all_pairs_of_answers():
    """Four texts hide two words: the chance is that of the other texts."""
    masks = ["alpha", "alpha", "beta", "beta"]
    # Of the other texts: 1 + 1 + 2 + 2 of 12.
    assert rate_by_chance(masks, [("alpha", "Alpha")] * 4) == pytest.approx(6 / 12)
    assert rate_by_chance(list("abcde"), [(one,) for one in "abcde"]) == 0.0
    assert rate_by_chance(["alpha"], [("alpha",)]) is None
    rng = np.random.default_rng(0)
    hidden = list(rng.choice(["Yes", "B. no", "a b", "no"], 30))
    given = [readings(str(one)) for one in rng.choice(["no", '"a b"', "B. no"], 30)]
    pairs = itertools.permutations(range(30), 2)
    expected = np.mean([is_answer(hidden[j], given[i]) for i, j in pairs])
    assert rate_by_chance(hidden, given) == pytest.approx(expected)


def test_the_answer_is_compared_with_the_hidden_option_not_with_the_right_one():
    """LLMSanitize asks for a wrong option and takes the right one for the answer."""
    asked = item(answer=2)
    place = hidden_option(asked, seed=0)
    assert place != 2
    right_one, _ = ask_options([asked], Scripted(lambda *_: OPTIONS[2]))
    completer = Scripted(lambda *_: OPTIONS[place])
    hidden_one, (row,) = ask_options([asked], completer)
    assert (right_one.n_found, hidden_one.n_found) == (0, 1)
    assert (row["hidden"], row["index"]) == (OPTIONS[place], 0)
    (prompt,) = completer.calls[0]["prompts"]
    assert [one for one in OPTIONS if one not in prompt] == [OPTIONS[place]]
    assert "Quiz" in prompt and "test split" in prompt


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (OPTIONS, None),
        (OPTIONS[:2], 0),
        (("12", "13 %", "a red fox"), 2),
        (("yes", "no", "a red fox"), 2),
        (("a red fox", "None of the above", "all of these"), 0),
        (("a red fox", "the big old dog here", "the big old cat here"), 0),
        (("a red fox", "A red fox.", "7"), 0),
        ((f"the {MASK}", *OPTIONS[1:]), 1),
        # Words of other letters count as well.
        (("пёс", "кот сидел на белом ковре", "кот сидел на чёрном ковре"), 0),
    ],
)
def test_options_that_anybody_would_guess_are_not_hidden(options, answer):
    assert hidden_option(item(options=options, answer=answer), seed=0) is None
    for right in range(4):
        places = {hidden_option(item(answer=right), seed=s) for s in range(60)}
        assert places == set(range(4)) - {right}
    # An item in JSON keeps the quotes round its mask.
    row = {"q": "What barks?", "choices": ["a fox", "tea", "a clock"], "answer": 0}
    benchmark = Benchmark("quiz", (json.dumps(row),), (row,))
    completer = Scripted(lambda *_: "x")
    _, (found,) = ask_options(read_items(benchmark), completer)
    (prompt,) = completer.calls[0]["prompts"]
    assert f'"{MASK}"' in prompt and '"answer"' not in prompt
    assert found["hidden"] in ("tea", "a clock")


def test_what_is_left_out_is_counted_and_nothing_to_hide_is_refused():
    items = [item(options=o) for o in (OPTIONS, OPTIONS[:2], ("пёс", "чай", "часы"))]
    result, rows = ask_options(items, Scripted(lambda *_: "x"))
    assert result.n_instances == len(rows) == 2
    assert "1 of 3 items have nothing to hide" in result.warnings[0]
    # ROUGE reads Latin letters alone.
    assert [row["rouge_l"] for row in rows] == [0.0, None]
    with pytest.raises(InputError, match="no item of 1 has anything to hide"):
        ask_options([item(answer=None)], Scripted(lambda *_: ""))
    with pytest.raises(InputError, match="no text of 1 has anything to hide"):
        ask_words([instance("it is so", "")], Scripted(lambda *_: ""))
    # Refused requests are no wrong answers.
    refused = Completion(text="", refused="filtered")
    answers = iter([refused, OPTIONS[0]])
    items = [item(1, answer=3), item(2, answer=3)]
    result, rows = ask_options(items, Scripted(lambda *_: next(answers)))
    assert (result.n_instances, result.n_refused) == (2, 1)
    assert rows[0]["found"] is None and result.rate in (0.0, 1.0)
    every, _ = ask_options(items, Scripted(lambda *_: refused))
    assert every.rate is None and every.finding == "refused"


@pytest.mark.parametrize(
    "answer",
    [
        "some green tea",
        "B. some green tea",
        "(B) some green tea",
        "Option B: Some  green tea",
        '"some green tea"',
        "**Some green tea**\n\nI hope that helps.",
        'The hidden option is "some green tea".',
        "<think>B? an old clock</think>\nsome green tea",
        "an old clock? no\n</think>\n\nsome green tea",
        "\n\nAnswer: some green tea",
    ],
)
def test_the_same_answer_is_read_however_it_is_dressed(answer):
    assert is_answer("some green tea", readings(answer))
    for other in ("", "tea", "B", "green tea or an old clock", "<think>"):
        assert not is_answer("some green tea", readings(other))
    assert is_answer("зелёный чай", readings("Зелёный чай."))


def patch_of(*files):
    return "".join(
        f"diff --git a/{f} b/{f}\n--- a/{f}\n+++ b/{f}\n@@ -1 +1 @@\n--- a\n+b\n"
        for f in files
    )


def rows_of(n, folder, repo="a/b"):
    told = [(f"{folder} {i}: it fails", f"{folder}/part_{i}.py") for i in range(n)]
    return [
        {"repo": repo, "problem_statement": text, "patch": patch_of(file)}
        for text, file in told
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def issues_of(tmp_path, rows):
    return read_issues(load_benchmark(write(tmp_path / "issues.jsonl", rows)))


def probe(issues, control, answer):
    """The row where a function of an issue's text answers, and the rows of texts."""

    def answered(prompt, *_):
        return answer(prompt.split("\n\n", 1)[1].removesuffix("\n\nFile:"))

    asked = {"issues": tuple(issues), "control_issues": tuple(control)}
    return file_path(comparison_inputs(Scripted(answered), **asked))


def test_issues_that_name_their_file_or_change_several_are_left_out(tmp_path):
    rows = [
        *rows_of(1, "src"),
        {"problem_statement": "see Part.py", "patch": patch_of("src/part.py")},
        {"problem_statement": "both", "patch": patch_of("a.py", "b.py")},
        {"problem_statement": "new", "patch": "--- /dev/null\n+++ b/new.py\n"},
        {"issue": "no repository", "file": "lib/c.py"},
        {"issue": "no repository", "file": "lib/c.py"},
        {"issue": "no file"},
    ]
    first, second = issues_of(tmp_path, rows)
    assert (first.index, first.file) == (0, "src/part_0.py")
    assert first.text == "Repository: a/b\n\nsrc 0: it fails"
    assert (second.index, second.text) == (4, "no repository")


def test_files_known_by_heart_are_told_from_those_of_a_control(tmp_path):
    issues, control = (issues_of(tmp_path, rows_of(20, f)) for f in ("src", "new"))
    known = {one.text: one.file for one in (*issues[:15], *control[:2])}

    def answer(text):
        if text == issues[19].text:
            return Completion(text="", refused="no")
        return f"File: `{known.get(text, 'src/other.py')}`"

    found, rows = probe(issues, control, answer)
    assert (found.n_found, found.n_instances, found.n_refused) == (15, 20, 1)
    assert (found.n_control_found, found.n_control) == (2, 20)
    # Whole numbers here, floats there.
    fisher = rate_test(15, 20, 2, 20).fisher
    assert found.p_control == pytest.approx(fisher, rel=1e-12) and fisher < 1e-4
    assert found.verdict == "suspected" and len(rows) == 40
    alone, _ = probe(issues, (), answer)
    assert (alone.verdict, alone.p_control, alone.n_found) == (None, None, 15)
    assert "no control" in alone.warnings[-1]
    alike, _ = probe(issues[15:19], control[2:], answer)
    assert (alike.verdict, alike.p_control) == ("no evidence", 1.0)
    easy, _ = probe(issues[:5], issues[5:15], answer)
    assert (easy.verdict, easy.p_control) == ("inconclusive", 1.0)


@pytest.mark.parametrize(
    ("n_each", "p_value", "verdict"),
    [(2, 1 / 6, "inconclusive"), (5, 1 / 252, "suspected")],
)
def test_repositories_change_sides_whole(tmp_path, n_each, p_value, verdict):
    """All files of the benchmark's repositories are named, none of the control's."""
    sides = []
    for s in ("src", "new"):
        rows = [rows_of(8, f"{s}{i}", f"{s}/{i}") for i in range(n_each)]
        sides.append(issues_of(tmp_path, itertools.chain(*rows)))
    known = {one.text: one.file for one in sides[0]}
    found, _ = probe(*sides, lambda text: known.get(text, "src/other.py"))
    # Choices of repositories: 4 standard errors of 9,999 draws.
    error = 4 * (p_value / 9999) ** 0.5 + 1e-4
    assert found.p_control == pytest.approx(p_value, abs=error)
    assert found.verdict == verdict
    assert not any("independent issues" in words for words in found.warnings)
    unnamed = [[dataclasses.replace(i, repository="") for i in side] for side in sides]
    alone, _ = probe(*unnamed, lambda text: known.get(text, "src/other.py"))
    assert alone.p_control < 1e-6
    assert any("assumes independent issues" in words for words in alone.warnings)


@pytest.mark.parametrize(
    ("refused", "verdict"),
    [((70, 0), "no evidence"), ((0, 200), "inconclusive"), ((198, 0), "inconclusive")],
)
def test_refusals_never_make_a_suspicion(tmp_path, refused, verdict):
    """Sixty of two hundred are named on either side, had all been answered."""
    sides = [issues_of(tmp_path, rows_of(200, f)) for f in ("src", "new")]
    answers = {}
    for issues, n_refused in zip(sides, refused, strict=True):
        for i, one in enumerate(issues):
            answers[one.text] = one.file if i < 60 else "src/other.py"
            if i >= len(issues) - n_refused:
                answers[one.text] = Completion(text="", refused="no")
    found, _ = probe(*sides, answers.get)
    assert (found.n_refused, found.n_control_refused) == refused
    assert (
        f"; {refused[0]} refused, counted as misses, and {refused[1]}" in found.finding
    )
    assert found.verdict == verdict and (found.p_control or 0) >= 0.5
    assert not any("no control" in words for words in found.warnings)


def test_a_path_is_read_from_what_models_put_around_it():
    right = ("./src/a.py", "/src/a.py", "- src/a.py", "The file is src/a.py.")
    for answer in (*right, "It is src/a.py or src/b.py", "lib/src/a.py"):
        assert is_answer("src/a.py", readings(answer)) == (answer in right), answer


def test_call_asks_for_the_files_of_both_sides_but_for_issues_of_both(tmp_path):
    own, new = (
        write(tmp_path / f"{name}.jsonl", [*rows_of(12, name), *rows_of(2, "both")])
        for name in ("src", "new")
    )
    flags = {"text": "problem_statement", "compare": ("file_path",), "sample": 10}
    design = ReplicationDesign(control=new, task="plain", **flags)
    plan = plan_replication(own, design)
    assert any("2 issues are in both files" in words for words in plan.warnings)
    asked = [one.text for one in (*plan.issues, *plan.control_issues)]
    assert len(asked) == 20 and not any("both" in text for text in asked)
    info = dict.fromkeys(("n_parameters", "context"))
    info |= dict.fromkeys(("name", "fingerprint", "dtype", "precision"), "m")
    info = {"info": ModelInfo(**info), "name": "m"}
    model = Scripted(lambda prompt, *_: "src/part_3.py")
    found = ask(plan, PromptedModel(completer=model, **info))
    (row,) = found.comparisons
    assert (row.method, row.n_instances, row.n_control) == ("file_path", 10, 10)
    assert row.n_found <= 1 and row.n_control_found == 0 and (row.p_control or 0) >= 0.5
    found.written(tmp_path / "out")
    assert row.finding in (tmp_path / "out" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "out")]) == 0
