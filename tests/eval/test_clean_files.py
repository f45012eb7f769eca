"""No clean model is accused: the study's files, readers and bounds, and its laws."""

from collections import Counter
from random import Random

import pytest
from scipy.stats import binomtest

from eval.clean_files.__main__ import COMMANDS, Job, counted, tasks_of
from eval.clean_files.findings import Cell, Finding, added, failures, judged, tallied
from eval.clean_files.orders import Rows
from eval.clean_files.readers import KERNELS, Reader
from eval.population import made_records
from eval.study import Records


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_no_clean_model_is_accused(name):
    tallies = added(counted(task) for task in tasks_of(name, 200, 0))
    assert not failures(judged(tallies))


def test_parts_are_the_files_of_a_command_once_each_and_counted_by_processes(tmp_path):
    tasks = tasks_of("asked", 200, 3)
    files = [number for _, start, end in tasks for number in range(start, end)]
    assert files == [*range(3, 3 + 40)]
    job = Job(records=Records(tmp_path, code="a commit"))
    task = "inflation", 0, 2
    found, failed = made_records(job, [task], n_processes=2)
    assert not failed and found[task]["cells"] == counted(task)


def findings(p_values, *, verdict=None):
    cell = Cell(command="audit --order FILE", test="adjacency", kind="a", reader="b")
    return [Finding(cell=cell, p=p, verdict=verdict) for p in p_values]


def test_counts_fail_beyond_the_bound_over_all_of_them():
    rng = Random(0)
    uniform = [rng.random() for _ in range(2_000)]
    held = judged(tallied(findings(uniform)))
    # A cell and its three sums; three levels and a word each.
    assert len(held) == 16 and not failures(held)
    for one in held[:4]:
        expected = binomtest(one.count, one.n, one.level, alternative="greater")
        assert one.chance == pytest.approx(expected.pvalue)
    halved = judged(tallied(findings([p / 2 for p in uniform])))
    assert {one.what for one in failures(halved)} >= {"p<=0.05", "p<=0.01"}
    # 12 of 2,000 words of a level of one in a thousand.
    accused = findings([0.5] * 12, verdict="contaminated") + findings([0.5] * 1_988)
    assert {one.what for one in failures(judged(tallied(accused)))} == {"contaminated"}
    # A file that is refused is counted and not tested.
    (tally,) = tallied(findings([None, 0.01])).values()
    assert tally == Counter({"n": 2, "refused": 1, "p<=0.05": 1, "p<=0.01": 1})
    ns = {one.what: one.n for one in judged(tallied(findings([None, 0.01])))}
    assert (ns["p<=0.05"], ns["contaminated"]) == (1, 2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_reader_scores_a_text_by_its_lines_alone(kernel):
    reader = Reader(kernel, 3)
    lines = ["boat sail", "anchor boat rope", "", "oven"]
    parts = [reader.of_text(a, b) for a, b in zip(["", *lines], lines, strict=False)]
    whole = reader.of_text("", "".join(f"{line}\n" for line in lines))
    assert whole == pytest.approx(sum(parts))
    after = [("boat sail\n", "oven\n"), ("oven\nboat sail\n", "oven")]
    first, again = Reader(kernel, 3)(after)
    assert first == again <= 0


def test_groups_keep_their_places_and_blocks_stay_whole():
    rows = Rows(lines=tuple("abcdef"), groups=(1, 2, 1, 2, 2, 3))
    orders = {tuple(rows.drawn(Random(seed))) for seed in range(200)}
    assert len(orders) == 12  # 2! 3! 1!
    assert {tuple(rows.groups[i] for i in order) for order in orders} == {rows.groups}
    blocks = Rows(lines=rows.lines, groups=(1, 1, 2, 2, 2, 3), flags={"block_field": 0})
    orders = {tuple(blocks.drawn(Random(seed))) for seed in range(200)}
    assert len(orders) == 6 and (2, 3, 4, 5, 0, 1) in orders
