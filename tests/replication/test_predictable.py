"""Second pieces that follow from the first: who only continues proves nothing."""

import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.control import JudgeResult
from jaxcontam.replication.design import ReplicationDesign
from jaxcontam.replication.instances import draw_instances, find_fields
from jaxcontam.replication.judges import follows_from_first, judge_local
from jaxcontam.replication.judging import CONTROL, PARTITION, Arm, Partition
from jaxcontam.scoring.completer import Completion
from tests.support.instances import instance
from tests.support.instances import judged as row_of

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
    design = ReplicationDesign(task="plain", k=len(texts))
    return draw_instances(benchmark, find_fields(benchmark, design), design).instances


def judged(instances, guided, control=None):
    """The row that decides, as the whole command makes it."""
    arms = {PARTITION: Arm(instances=instances, guided=guided)}
    if control is not None:
        arms[CONTROL] = control
    partition = Partition(
        name="set", fingerprint="sha256:0", prompt_version=None, arms=arms
    )
    (row,) = partition.results(seed=0)
    assert isinstance(row, JudgeResult)
    return partition, row


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_what_only_continues_are_no_evidence(kind):
    instances = drawn([KINDS[kind](10 + i) for i in range(N_ROWS)])
    guided = tuple(Completion(text=one.second_piece) for one in instances)
    plainly = row_of(judge_local(instances, guided))
    assert plainly.verdict == "suspected", "as if a copy of these meant anything"
    partition, row = judged(instances, guided)
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
    _, row = judged(own.instances, own.guided, control=arm("tall", 100))
    assert (row.n_instances, row.n_follows) == (3, N_ROWS)
    assert (row.n_control, row.n_control_follows) == (3, N_ROWS)
    assert (row.n_exact, row.control_copies) == (3, 3)


@pytest.mark.parametrize(
    ("first", "second", "follows"),
    [
        ("2 4 8 16", "32 64 128", True),
        ("10 9 8 7", "6 5 4 3", True),
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
