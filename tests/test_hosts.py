"""Commands on several processes: same results to the bit, one report, one clear end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli import main
from tests.host_process import free_port
from tests.served_model import save

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["the", "one", "in", "then", "on", "inn", "thin", "tin", "note", "hint"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a model and two benchmarks, and a cache of compiled programs."""
    folder = tmp_path_factory.mktemp("hosts")
    save(folder / "model")
    for name, n in (("b", 40), ("long", 700)):
        rng = np.random.default_rng(n)
        lines = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(n)]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


class Run:
    """The same command in n processes."""

    def __init__(self, folder, n, words, *, environment=None, words_of=None):
        port = free_port()
        self.outputs = [folder / f"output-{port}-{process}" for process in range(n)]
        self.errors = [folder / f"errors-{port}-{process}" for process in range(n)]
        self.processes = []
        for process in range(n):
            own = (words_of or {}).get(process, words)
            with (
                self.outputs[process].open("w") as output,
                self.errors[process].open("w") as errors,
            ):
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "jaxcontam", *own, "--distributed"],
                        cwd=folder,
                        stdout=output,
                        stderr=errors,
                        env={
                            **os.environ,
                            "PYTHONPATH": str(ROOT),
                            "JAX_PLATFORMS": "cpu",
                            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                            "JAX_NUM_PROCESSES": str(n),
                            "JAX_PROCESS_ID": str(process),
                            **(environment or {}),
                        },
                    )
                )

    def ended(self, seconds=300):
        """Exit codes, once all have ended."""
        return [process.wait(seconds) for process in self.processes]

    def output(self, process):
        return self.outputs[process].read_text()

    def error(self, process):
        return self.errors[process].read_text()


def results_of(document):
    """Rows of a report without what depends on the store."""
    costs = {"tokens_scored", "cached_tokens"}
    return [
        {name: value for name, value in row.items() if name not in costs}
        for row in document["results"]
    ]


def assert_same_orders(folder, other):
    with np.load(folder / "orders.npz") as found, np.load(other / "orders.npz") as one:
        assert found.files == one.files
        for name in found.files:
            np.testing.assert_array_equal(found[name], one[name])


def test_audit_of_two_processes_is_that_of_one_to_the_bit(files):
    words = ["audit", "model", "b.txt", "--tests", "stratified"]
    # First, so that the two find its programs compiled.
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        assert main([*words, "--out", "one"]) == 0
    two = Run(files, 2, [*words, "--out", "two", "--json"])
    assert two.ended() == [0, 0], two.error(0) + two.error(1)
    # What libraries print when processes connect is not in the way of a program.
    document = json.loads(two.output(0))
    assert two.output(1) == ""
    names = {path.name for path in (files / "two").iterdir()}
    assert names == {
        "orders.npz",
        "report.html",
        "report.json",
        "results.csv",
        "store",
    }
    # Each process has a file of its own.
    assert len(list((files / "two" / "store").iterdir())) == 2

    one = json.loads((files / "one" / "report.json").read_text())
    assert results_of(document) == results_of(one)
    assert_same_orders(files / "two", files / "one")
    assert document["device"]["n"] == 2 * one["device"]["n"]


def test_model_that_runs_elsewhere_is_refused(files, capsys):
    for model in ("api:http://127.0.0.1:9/v1#m", "lm_eval:hf:pretrained=m"):
        assert main(["audit", model, str(files / "b.txt"), "--distributed"]) == 2
        assert "--distributed goes with a model directory" in capsys.readouterr().err
    assert main(["audit", "m", str(files / "b.txt"), "--distributed", "--dry-run"]) == 2
    assert "--dry-run is for one process" in capsys.readouterr().err
    words = ["membership", "model", str(files / "b.txt"), "--distributed"]
    assert main([*words, "--reference", "api:http://127.0.0.1:9/v1#m"]) == 2
    assert "--reference must be a model directory" in capsys.readouterr().err


# Processes that load JAX and compile, several times: minutes of both cores.
@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2])
def test_kill_of_one_of_four_ends_all_and_the_rerun_goes_on(files, victim):
    out = files / f"killed-{victim}"
    words = ["audit", "model", "long.txt", "--tests", "stratified", "--out", str(out)]
    four = Run(files, 4, words)
    # Each has stored a first batch: all are at work.
    while len(list((out / "store").glob("*.scores"))) < 4:
        assert all(process.poll() is None for process in four.processes)
        time.sleep(0.05)
    four.processes[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    codes = four.ended()
    assert time.monotonic() - killed < 60
    for process, code in enumerate(codes):
        if process == victim:
            assert code == -signal.SIGKILL
            continue
        assert code == 3
        assert four.error(process) == (
            f"jaxcontam: error: process {victim} of 4 is gone\n"
            "  hint: run the same command again on all hosts: it goes on from what is "
            "stored\n"
        )
    assert not (out / "report.json").exists()

    two = Run(files, 2, words)
    assert two.ended() == [0, 0], two.error(0) + two.error(1)
    one = files / f"alone-{victim}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        assert main([*words[:-1], str(one)]) == 0
    document = json.loads((out / "report.json").read_text())
    assert results_of(document) == results_of(
        json.loads((one / "report.json").read_text())
    )
    assert_same_orders(out, one)
    # What the four had stored was not scored again.
    (row,) = document["results"]
    assert row["cached_tokens"] > 0


@pytest.mark.slow
def test_copy_of_the_weights_is_divided_over_processes(files):
    words = ["audit", "model", "b.txt", "--tests", "stratified", "--out"]
    four = Run(files, 4, [*words, "groups", "--mesh", "model=2"])
    assert four.ended() == [0] * 4, "".join(map(four.error, range(4)))
    # One process of each of the two groups stores what it scored.
    assert len(list((files / "groups" / "store").iterdir())) == 2
    one = Run(
        files,
        1,
        [*words, "divided", "--mesh", "data=1,model=2"],
        environment={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )
    assert one.ended() == [0], one.error(0)
    assert_same_orders(files / "groups", files / "divided")


@pytest.mark.slow
def test_flags_that_one_process_can_not_read_end_both(files):
    words = ["audit", "model", "b.txt", "--out", "unread"]
    two = Run(files, 2, words, words_of={1: [*words, "--no-such"]})
    started = time.monotonic()
    assert two.ended() == [2, 2]
    # Far from the five minutes that process 0 waits for others to come.
    assert time.monotonic() - started < 120
    assert two.error(0).startswith(
        "jaxcontam: error: process 1: unknown flag '--no-such'\n  hint: "
    )
    assert "\njaxcontam: error: unknown flag '--no-such'\n" in two.error(1)


@pytest.mark.slow
def test_command_that_differs_between_processes_is_one_line(files):
    words = ["audit", "model", "b.txt", "--out", "other"]
    two = Run(files, 2, words, words_of={1: [*words, "--seed", "1"]})
    assert two.ended() == [2, 2]
    for process in range(2):
        assert two.error(process) == (
            "jaxcontam: error: --distributed: process 1 has another command than "
            "process 0\n"
            "  hint: run the same command on the same files on every host\n"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["score", "model", "b.txt"],
        ["membership", "model", "b.txt", "--nonmembers", "long.txt", "--limit", "30"],
        ["calibrate", "model", "b.txt", "--draws", "3"],
    ],
)
def test_other_commands_write_the_same_on_two_processes(files, words):
    outs = [files / f"{words[0]}-{n}" for n in (1, 2)]
    two = Run(files, 2, [*words, "--out", str(outs[1])])
    assert two.ended() == [0, 0], two.error(0) + two.error(1)
    assert two.output(1) == ""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        assert main([*words, "--out", str(outs[0])]) == 0
    if words[0] == "score":
        assert outs[1].read_bytes() == outs[0].read_bytes()
        return
    found, one = (json.loads((out / "report.json").read_text()) for out in outs[::-1])
    assert results_of(found) == results_of(one)
