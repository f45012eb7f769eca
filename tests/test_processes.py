"""Processes: commands of a pod give the report of one; a pool outlives its tasks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.pools import over_processes
from tests.support.pretrain_processes import finish_all, free_port
from tests.support.served_model import save

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["the", "one", "in", "then", "on", "inn", "thin", "tin", "note", "hint"]
AUDIT = ["audit", "model", "b.txt", "--tests", "stratified", "--out"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a model and a benchmark."""
    folder = tmp_path_factory.mktemp("pod")
    save(folder / "model")
    rng = np.random.default_rng(40)
    lines = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(40)]
    (folder / "b.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


ALONE = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}


def started(folder, n, words):
    """The same command in n processes."""
    pod = ALONE | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}"}
    pod["JAX_NUM_PROCESSES"] = str(n)
    return [
        subprocess.Popen(
            [sys.executable, "-m", "jaxcontam", *words, "--shard", "pod"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=pod | {"JAX_PROCESS_ID": str(process)},
        )
        for process in range(n)
    ]


def assert_same_orders(folder, other):
    with np.load(folder / "orders.npz") as found, np.load(other / "orders.npz") as one:
        assert found.files == one.files
        for name in found.files:
            np.testing.assert_array_equal(found[name], one[name])


def test_a_pod_scores_in_shares_and_its_first_process_judges(files):
    two = finish_all(started(files, 2, [*AUDIT, "two"]))
    assert [code for code, _, _ in two] == [0, 0], two
    for process, (_, said, _) in enumerate(two):
        assert f"share {process} of 2: its " in said
        assert ("report: " in said) == (process == 0)
    assert len(list((files / "two" / "store").glob("*.scores"))) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        assert main([*AUDIT, "one"]) == 0
    assert_same_orders(files / "two", files / "one")
    (row,) = json.loads((files / "two" / "report.json").read_text())["results"]
    assert row["tokens_scored"] == 0


@pytest.mark.slow
def test_processes_that_hold_one_copy_of_the_weights_score_together(files):
    words = [*AUDIT, "together", "--mesh", "fsdp=2"]
    two = finish_all(started(files, 2, words))
    assert [code for code, _, _ in two] == [0, 0], two
    assert "share" not in two[1][1] and "report: " not in two[1][1]
    # Process 0 alone stores.
    assert len(list((files / "together" / "store").glob("*.scores"))) == 1
    again = finish_all(started(files, 2, words))
    assert [code for code, _, _ in again] == [0, 0], again
    (row,) = json.loads((files / "together" / "report.json").read_text())["results"]
    assert row["tokens_scored"] == 0
    one = subprocess.run(
        [sys.executable, "-m", "jaxcontam", *AUDIT, "divided", "--mesh", "fsdp=2"],
        cwd=files,
        env=ALONE | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        check=False,
    )
    assert one.returncode == 0, one.stderr
    assert_same_orders(files / "together", files / "divided")


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "score model b.txt",
        "membership model b.txt --nonmembers c.txt",
        "calibrate model b.txt --draws 3 --tests adjacency,reversal",
    ],
)
def test_other_commands_write_the_same_from_shares(files, line, capsys):
    words = line.split()
    (files / "c.txt").write_text((files / "b.txt").read_text()[::-1].strip())
    outs = [files / f"{words[0]}-{n}" for n in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        assert main([*words, "--out", str(outs[0])]) == 0
        for share in ("0/2", "1/2", "merge"):
            assert main([*words, "--out", str(outs[1]), "--shard", share]) == 0
    if words[0] == "score":
        assert outs[1].read_bytes() == outs[0].read_bytes()
        return
    found, one = (
        [
            {name: value for name, value in row.items() if "tokens" not in name}
            for row in json.loads((out / "report.json").read_text())["results"]
        ]
        for out in outs
    )
    assert found == one


def opener(job):
    """What runs in the processes of the tests below."""

    def run(task):
        if task == job["fails"]:
            raise ValueError("no good")
        if task == job["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
        return task, os.getpid(), len(cores)

    return run


def broken_opener(job):
    raise RuntimeError(f"cannot open {job}")


def test_task_that_fails_or_dies_costs_no_other_task():
    job = {"fails": 2, "dies": 4}
    found = dict(over_processes(opener, job, range(7), n_processes=2))
    assert found.keys() == set(range(7))
    assert found[2].reason == "ValueError: no good"
    assert "Traceback" in found[2].details
    assert found[4].reason == f"its process ended with code {-signal.SIGKILL}"
    for task in (0, 1, 3, 5, 6):
        number, pid, n_cores = found[task]
        assert (number, n_cores) == (task, 1)
        assert pid != os.getpid()


class Deadly:
    """Ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.parametrize(
    ("opener", "job", "reason"),
    [
        # A job so large that its process dies while it is sent.
        (opener, [Deadly(), bytes(2**20)], "its process ended with code 3"),
        (broken_opener, "it", "RuntimeError: cannot open it"),
    ],
)
def test_processes_that_cannot_start_do_not_try_every_task(opener, job, reason):
    found = dict(over_processes(opener, job, range(30), n_processes=2))
    assert {one.reason for one in found.values()} == {reason}
    assert len(found) == 3


def test_processes_end_when_the_caller_stops():
    job = {"fails": None, "dies": None}
    results = over_processes(opener, job, range(50), n_processes=1)
    _, (_, pid, _) = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
