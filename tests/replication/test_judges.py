"""Judges of copies: hand cases, the words of models, and the row that they give."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.replication.instances import words_of
from jaxcontam.replication.judges import (
    NEAR,
    Judged,
    agreement,
    instance_warnings,
    judge_llm,
    judge_local,
    judge_pair,
    judge_prompt,
    near_score,
    parse_judgement,
)
from jaxcontam.scoring.completer import Completion
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
        (LONG, "the old mill by the river was sold", "near"),
        (LONG, "the old mill", "near"),
        (LONG, "the old", "no"),
        (LONG, "a painter went to the town in spring", "no"),
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
    done = [
        Completion(text=f"In spring {LONG}"),
        Completion(text="", refused="filtered"),
        Completion(text=""),
    ]
    found = judge_local([mill()] * 3, done)
    assert found == Judged(labels=("exact", None, "no"), n_refused=1)
    scores = np.array([np.nan, 0.9, 0.9])
    assert judge_local([mill()] * 3, done, bleurt=scores) == found


FIRST = "Nobody in the village knew why"


@pytest.mark.parametrize(
    "said",
    [
        f"{FIRST} {LONG}",
        f'"{FIRST.upper()}  {LONG}"',
        f"Beginning: {FIRST}\nRest: {LONG}",
        f"{FIRST.replace(' in', '  in')}, {LONG}",
        f"Here is the rest of the instance:\n\n{LONG}",
        f'Sure! The rest of it reads: "{LONG}"',
        f"**Rest of the instance:** {LONG}",
        f"<think>What was it? The mill.</think>{LONG}",
        f"The user wants the mill.</think>\n{FIRST} {LONG}",
        f"Rest: {LONG}",
        f"\nSentence 2:\n{LONG}",
    ],
)
@pytest.mark.parametrize("n_words", [4, 11])
def test_a_copy_is_one_whatever_a_chat_model_says_around_it(said, n_words):
    short = " ".join(LONG.split()[:n_words])
    case = mill(short, FIRST)
    done = [Completion(text=said.replace(LONG, short))]
    assert judge_local([case], done).labels == ("exact",)
    judge = Answers([Completion(text="No")])
    judge_llm(judge, [case], done)
    assert "think" not in judge.asked[0].split("Now this one")[1]
    assert FIRST not in judge.asked[0]


def test_a_long_reference_is_found_behind_other_words_and_a_short_one_is_not():
    said = "I remember that one well, and it went " + LONG + ", I believe"
    assert judge_pair(LONG, said) == "exact"
    assert judge_pair("the old mill", said) == "no"
    # The words of the first piece do not count twice.
    case = mill("the old mill by the river was sold", LONG)
    assert judge_local([case], [Completion(text=LONG)]).labels == ("no",)


def test_what_is_copied_without_having_been_seen_is_warned_of():
    easy, hard = mill("Paris", "The capital of France?", "pair"), mill()
    (warning,) = instance_warnings([easy, hard])
    assert "1 of 2 references have fewer than 3 words" in warning
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
        ("no.", "no"),
        ("**Yes (Near-Exact Match)**", "near"),
        ('Answer: "Yes (exact match)"', "exact"),
        ("Answer: No", "no"),
        ("The answer is somewhere below\nFinal answer: Yes, near exact match.", "near"),
        ("Yes - exact match", "exact"),
        ("Exact match", "exact"),
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
        ("Nothing can be said", None),
        ("I cannot judge this.", None),
        ("", None),
        ("It is hard.\nNo\nYes (exact match)", "exact"),
    ],
)
def test_answers_are_read_as_models_write_them(answer, expected):
    assert parse_judgement(answer) == expected


def test_the_prompt_ends_with_the_pair_as_it_is():
    head, tail = judge_prompt("R{candidate}", "  C{reference} ").split("Now this one")
    assert tail == "\nReference: R{candidate}\nCandidate: C{reference}\nAnswer:"
    assert "{" not in head


@dataclasses.dataclass
class Answers:
    """A completer that answers from a list and remembers what it was asked."""

    said: list
    name: str = "judge"
    asked: list = dataclasses.field(default_factory=list)

    def complete(self, prompts, **options):
        self.asked += prompts
        self.options = options
        return [(one,) for one in self.said]


def test_model_judge_counts_what_it_cannot_read():
    judge = Answers(
        [
            Completion(text="Yes (exact match)"),
            Completion(text="I am not sure"),
            Completion(text="", refused="content filter"),
            Completion(text="No"),
        ]
    )
    # The empty completion and the refused one are not asked about.
    done = [Completion(text=text) for text in ("a", "  ", "b", "c", "d")]
    done.insert(3, Completion(text="", refused="refused before"))
    found = judge_llm(judge, [mill()] * 6, done, seed=5)
    assert found.labels == ("exact", "no", None, None, None, "no")
    assert (found.n_unparsed, found.n_refused, len(judge.asked)) == (1, 2, 4)
    assert judge.options["seed"] == 5
    assert judge.options.get("temperature", 0) == 0
    nothing = judge_llm(Answers([]), [mill()], [Completion(text="")])
    assert nothing.labels == ("no",)


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
