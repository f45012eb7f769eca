"""Judges of copies: hand cases, the words of models, and what follows by itself."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.control import JudgeResult
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.instances import draw_instances, find_fields, words_of
from jaxcontam.replication.judges import (
    NEAR,
    Judged,
    agreement,
    follows_from_first,
    instance_warnings,
    judge_llm,
    judge_local,
    judge_pair,
    near_score,
    parse_judgement,
)
from jaxcontam.replication.judging import CONTROL, PARTITION, Arm, Partition
from jaxcontam.scoring.completer import Completion
from tests.support.completers import Scripted
from tests.support.instances import instance, judged

LONG = "the old mill by the river was sold to a painter"


def mill(second=LONG, first="In spring", cut="inside"):
    return instance(first, second, cut=cut)


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (LONG, LONG, "exact"),
        (LONG, "  The OLD mill, by the river: was sold to a painter!\n", "exact"),
        (LONG, LONG + " who had come from far away and stayed for years", "exact"),
        (LONG, "the old mill by the river was sold to an artist", "near"),
        (LONG, "the old mill", "near"),
        (LONG, "the old", "no"),
        (LONG, f"I remember that one well, and it went {LONG}, I believe", "exact"),
        ("the old mill", f"I remember that one, and it went {LONG}, I believe", "no"),
        (LONG, "", "no"),
        ("", LONG, "no"),
        ("...", "!!!", "no"),
        # Two words are met by chance; so is one word that is the whole reference.
        ("a dog", "a dog barks", "no"),
        ("a dog", "A dog.", "exact"),
        ("yes it is", "yes it is so and much more was said of it there", "near"),
        # Other alphabets have words, too.
        ("старый дом продан", "Старый дом продан.", "exact"),
        ("Über Nacht fiel Schnee", "über nacht fiel schnee", "exact"),
        # Scripts without spaces are judged by their signs.
        ("老磨坊在河边被卖给了画家", "答案是老磨坊在河边被卖给了画家。", "exact"),
        ("老磨坊在河边被卖给了画家", "老磨坊在河边被卖给了一位画家", "near"),
        ("老磨坊在河边被卖给了画家", "今天天气很好我们去公园", "no"),
        # A model that runs on is judged on its first words, and on no others.
        (LONG, LONG.replace("a painter", "an artist") + " and then" * 200, "near"),
        (LONG, "and then " * 200 + LONG.replace("a painter", "an artist"), "no"),
    ],
)
def test_hand_cases(reference, candidate, expected):
    assert judge_pair(reference, candidate) == expected


def near(reference, candidate):
    return near_score(words_of(reference), words_of(candidate))


def test_near_score_is_the_mean_of_two_shares_of_the_candidate():
    # Words in order: the old mill was sold = 5 of 6; "again" is a function word, so of
    # the content words old, mill and sold 3 of 3.
    found = near(LONG, "the old mill was sold again")
    assert found == pytest.approx((5 / 6 + 3 / 3) / 2)
    assert (near(LONG, LONG), near(LONG, "nothing shared")) == (1, 0)
    # A word that comes twice is shared once.
    twice = near("we saw mills", "mills mills mills")
    assert twice == pytest.approx((1 / 3 + 1 / 3) / 2)
    # Few words of a long reference are no copy, though all of them are right.
    reference = " ".join(f"word{i}" for i in range(40))
    few, enough = (" ".join(f"word{i}" for i in range(n)) for n in (9, 10))
    assert near(reference, few) == 1 and judge_pair(reference, few) == "no"
    assert judge_pair(reference, enough) == "near"


def test_scores_of_meaning_find_copies_in_other_words():
    other = "somebody who paints bought the old mill by that river"
    assert near(LONG, other) < NEAR
    scores = {None: "no", 0.8: "near", 0.7: "no", float("nan"): "no"}
    assert {x: judge_pair(LONG, other, bleurt=x) for x in scores} == scores
    # Not without some of the words.
    assert judge_pair(LONG, "none of this at all", bleurt=0.9) == "no"


def test_local_judge_counts_refusals_and_leaves_a_repeated_beginning_out():
    done = [Completion(text=text) for text in (f"In spring {LONG}", "", "")]
    done[1] = Completion(text="", refused="filtered")
    found = judge_local([mill()] * 3, done)
    assert found == Judged(labels=("exact", None, "no"), n_refused=1)
    # Nor do the words of the first piece count twice.
    case = mill("the old mill by the river was sold", LONG)
    assert judge_local([case], [Completion(text=LONG)]).labels == ("no",)
    scores = np.array([np.nan, 0.9, 0.9])
    assert judge_local([mill()] * 3, done, bleurt=scores) == found


FIRST = "Nobody in the village knew why"


@pytest.mark.parametrize(
    "said",
    [
        f"{FIRST} {LONG}",
        f'"{FIRST.upper()}  {LONG}"',
        f"Beginning: {FIRST}\nRest: {LONG}",
        f"Here is the rest of the instance:\n\n{LONG}",
        f'Sure! The rest of it reads: "{LONG}"',
        f"**Rest of the instance:** {LONG}",
        f"<think>What was it? The mill.</think>{LONG}",
        f"The user wants the mill.</think>\n{FIRST} {LONG}",
        f"\nSentence 2:\n{LONG}",
    ],
)
@pytest.mark.parametrize("n_words", [4, 11])
def test_a_copy_is_one_whatever_a_chat_model_says_around_it(said, n_words):
    short = " ".join(LONG.split()[:n_words])
    case = mill(short, FIRST)
    done = [Completion(text=said.replace(LONG, short))]
    assert judge_local([case], done).labels == ("exact",)
    judge = Scripted(lambda *_: "No")
    judge_llm(judge, [case], done)
    ((prompt,),) = (call["prompts"] for call in judge.calls)
    assert "think" not in prompt.split("Now this one")[1] and FIRST not in prompt


def test_what_is_copied_without_having_been_seen_is_warned_of():
    easy, hard = mill("Paris", "The capital of France?", "pair"), mill()
    assert "1 of 2 references have fewer" in instance_warnings([easy, hard])[0]
    alike = mill("the cat is on the mat", "the cat is on the mat today", "pair")
    apart = mill("it rains a lot here", "the cat is on the mat", "pair")
    assert "in 1 of 2 pairs" in instance_warnings([alike, apart])[0]
    single = dataclasses.replace(alike, cut="sentence")
    assert instance_warnings([hard]) == instance_warnings([apart, single]) == ()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Yes (exact match)", "exact"),
        ("Yes (near-exact match)", "near"),
        ("No", "no"),
        ("**Yes (Near-Exact Match)**", "near"),
        ('Answer: "Yes (exact match)"', "exact"),
        ("The answer is somewhere below\nFinal answer: Yes, near exact match.", "near"),
        ("Near-exact match", "near"),
        ("yes", "near"),
        ("> Yes (near\u2011exact match)", "near"),
        ("<think>No, or yes (exact match)?</think>\nNo", "no"),
        ("mumbling Yes (exact match)</think>No", "no"),
        ("<think>Yes (exact match) it", None),
        ("No exact match, but near-exact", None),
        ("No, the candidate is about something else.", "no"),
        ("Exact match: No\nNear-exact match: Yes", None),
        ("Not an exact match.", None),
        ("Yesterday", None),
        ("", None),
        ("It is hard.\nNo\nYes (exact match)", "exact"),
    ],
)
def test_answers_are_read_as_models_write_them(answer, expected):
    assert parse_judgement(answer) == expected


def test_model_judge_counts_what_it_cannot_read():
    refused = Completion(text="", refused="filtered")
    answers = iter(("Yes (exact match)", "I am not sure", refused, "No"))
    judge = Scripted(lambda *_: next(answers))
    # The empty completion and the refused one are not asked about.
    done = [Completion(text=text) for text in ("R{candidate}", "  ", "b", "c", "d")]
    done.insert(3, Completion(text="", refused="refused before"))
    found = judge_llm(judge, [mill()] * 6, done, seed=5)
    (asked,) = judge.calls
    head, tail = asked["prompts"][0].split("Now this one")
    assert tail == f"\nReference: {LONG}\nCandidate: R{{candidate}}\nAnswer:"
    assert "{" not in head
    assert found.labels == ("exact", "no", None, None, None, "no")
    assert (found.n_unparsed, found.n_refused, len(asked["prompts"])) == (1, 2, 4)
    assert (asked["seed"], asked["temperature"]) == (5, 0)


def test_agreement_of_hand_counts():
    labels = ["exact", "near", "no", "no", "near", None, "no"]
    humans = ["near", "near", "near", "no", "no", "near", None]
    found = agreement(labels, humans)
    # Both: 2 copies alike, 1 alike no, one missed, one too many.
    chance = (3 * 3 + 2 * 2) / 25
    assert dataclasses.astuple(found) == pytest.approx(
        (5, 3 / 5, 2 * 2 / (3 + 3), (3 / 5 - chance) / (1 - chance), 2 / 5)
    )
    assert agreement([None], ["no"]).accuracy is None
    all_no = agreement(["no", "no"], ["no", "no"])
    assert dataclasses.astuple(all_no) == (2, 1, None, None, 1)
    row = judged(["exact", "no"], humans=["exact", "no"])
    assert (row.agreement, row.f1, row.agreement_of_always_no) == (1, 1, 0.5)


N_ROWS = 13
KINDS = {
    "a word again": lambda i: f"word{i} " * 12,
    "a phrase again": lambda i: f"row {i} of many " * 6,
    "the same line again": lambda i: f"Line number {i} is here to stay.\n" * 6,
    "counting": lambda i: " ".join(str(i + j) for j in range(12)),
    "even steps": lambda i: ", ".join(str(3 * i + 7 * j) for j in range(12)),
    "counting lines": lambda i: "\n".join(f"Step {i + j}: go on." for j in range(8)),
    "decimals": lambda i: " ".join(f"{i + 0.5 * j:.1f}" for j in range(12)),
}


def drawn(texts):
    rows = tuple({"text": text} for text in texts)
    benchmark = Benchmark("set", tuple(map(str, rows)), rows)
    design = ReplicationDesign(task="plain", sample=len(texts))
    return draw_instances(benchmark, find_fields(benchmark, design), design).instances


def decided(instances, guided, control=None):
    """The row that decides, as the whole command makes it."""
    arms = {PARTITION: Arm(instances=instances, guided=guided), CONTROL: control}
    arms = {name: arm for name, arm in arms.items() if arm}
    known = {"name": "set", "fingerprint": "sha256:0", "prompt_version": None}
    partition = Partition(arms=arms, **known)
    (row,) = partition.results(seed=0)
    assert isinstance(row, JudgeResult)
    return partition, row


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_what_only_continues_are_no_evidence(kind):
    instances = drawn([KINDS[kind](10 + i) for i in range(N_ROWS)])
    guided = tuple(Completion(text=one.second_piece) for one in instances)
    plainly = judged(judge_local(instances, guided))
    assert plainly.verdict == "suspected", "as if a copy of these meant anything"
    partition, row = decided(instances, guided)
    assert (row.n_follows, row.n_instances, row.verdict) == (N_ROWS, 0, None)
    assert all(text["follows"] for text in partition.rows())


def test_what_follows_is_left_out_of_both_arms_and_the_rest_decides():
    whole = ("farmer frozen where", "sailor golden when", "miller narrow how")

    def arm(a, first):
        prose = (
            f"The {a} {b} crossed a {c} river and never told anybody {d} it had been."
            for b, c, d in map(str.split, whole)
        )
        counting = (KINDS["counting"](first + i) for i in range(N_ROWS))
        instances = drawn([*prose, *counting])
        guided = tuple(Completion(text=one.second_piece) for one in instances)
        return Arm(instances=instances, guided=guided)

    own = arm("old", 0)
    _, row = decided(own.instances, own.guided, control=arm("tall", 100))
    assert (row.n_instances, row.n_follows) == (3, N_ROWS)
    assert (row.n_control, row.n_control_follows) == (3, N_ROWS)
    assert (row.n_exact, row.control_copies) == (3, 3)


@pytest.mark.parametrize(
    ("first", "second", "follows"),
    [
        ("2 4 8 16", "32 64 128", True),
        ("It costs 1,000 or 1,100 or", "1,200 or 1,300 or 1,400", True),
        ("File 007 was seen.", "File 008 was seen. File 009 was seen.", True),
        ("On Monday we sing. On Tuesday we", "sing. On Wednesday we sing.", True),
        ("January, February, March, April", "May, June, July", True),
        ("one two three four", "five six seven", True),
        ("What is this? It is a stone.", "What is this? It is a stone.", True),
        # Only memory or wit can write these.
        ("2 4 8 16", "33 65 127", False),
        ("10 9 8 7", "16 25 94 3", False),
        ("On Monday we sing. On Tuesday we", "stay at home and read papers.", False),
        ("Paris is the capital of France", "Rome is the capital of Italy", False),
        ("The cat sat on the mat and the dog", "barked until its owner came.", False),
        ("", "anything at all", False),
        ("What is this?", "!", False),
    ],
)
def test_pieces_that_follow(first, second, follows):
    assert follows_from_first(instance(first, second)) == follows
