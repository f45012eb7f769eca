"""Records that processes make: who makes them, and what is told of those that fail."""

import os

from eval.population import made_records
from eval.study import Records


def inputs(task):
    return f"task-{task}", task


def maker():
    return told


def told(task):
    if task < 0:
        raise ValueError(f"no {task}")
    return {"pid": os.getpid()}


def test_the_last_of_many_is_made_as_the_others_were_and_one_alone_is_made_here(
    tmp_path,
):
    records = Records(tmp_path, code="a commit")
    alone, _ = made_records(records, [1, 2], inputs, maker, n_processes=1)
    assert {one["pid"] for one in alone.values()} == {os.getpid()}
    found, failures = made_records(records, [1, 2, 3], inputs, maker, n_processes=2)
    assert [*found] == [1, 2, 3] and not failures
    assert found[1] == alone[1] and found[3]["pid"] != os.getpid()


def test_what_is_not_tried_after_failures_alone_is_counted_as_failed(tmp_path):
    records, tasks = Records(tmp_path, code="a commit"), [*range(-6, 0)]
    found, failures = made_records(records, tasks, inputs, maker, n_processes=2)
    assert not found and sorted(failures) == sorted(inputs(task)[0] for task in tasks)
    reasons = sorted(failures.values())
    assert [reason[:10] for reason in reasons[:3]] == ["ValueError"] * 3
    assert reasons[3:] == ["not tried"] * 3
