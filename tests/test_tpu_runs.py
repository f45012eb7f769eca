"""Commands on TPU VMs: started once, waited for, stopped, taken up again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tpu_cloud import (
    FOLDER,
    WORDS,
    cloud_in,
    waited,
)


@pytest.fixture
def cloud(tmp_path):
    with cloud_in(tmp_path) as made:
        yield made


def test_setup_leaves_a_running_command_alone(cloud):
    cloud.active()
    words = cloud.script(f"until [ -e {cloud.stub}/go ]; do sleep 0.1; done")
    assert cloud.run("run_all.sh", *words, DETACH="1").returncode == 0
    done = cloud.run("setup_all.sh")
    assert done.returncode == 0 and "a command runs" in done.stderr
    assert "scp" not in cloud.verbs()
    (cloud.stub / "go").touch()
    assert cloud.run("run_all.sh", *words).returncode == 0


def test_command_that_ends_between_two_looks_was_not_killed(tmp_path):
    """The lock is found free a moment after no exit code was there."""
    folder = tmp_path / "runs/trial"
    folder.mkdir(parents=True)
    (folder / "command").write_text("true")
    (tmp_path / "runs/current").write_text("trial")
    commands = tmp_path / "bin"
    commands.mkdir()
    flock = commands / "flock"
    for ends, state in (("", "exited 137"), (f"echo 0 > {folder}/code", "exited 0")):
        flock.write_text(f"#!/bin/sh\n{ends}\n")
        flock.chmod(0o755)
        found = subprocess.run(
            ["bash", FOLDER / "on_worker/state.sh", "trial"],
            env={"HOME": str(tmp_path), "PATH": f"{commands}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.splitlines()[0].endswith(state)


def test_words_arrive_unchanged_on_every_worker(cloud):
    cloud.active()
    code = "import json, os, sys; print(json.dumps([os.environ['WORKER'], *sys.argv]))"
    done = cloud.run("run_all.sh", sys.executable, "-c", code, *WORDS)
    assert done.returncode == 0, done.stderr
    for worker, home in enumerate(cloud.homes):
        printed = (home / "runs/trial/log").read_text().splitlines()[-2]
        assert json.loads(printed) == [str(worker), "-c", *WORDS]


def test_exit_code_is_the_largest_of_the_workers(cloud):
    cloud.active()
    words = cloud.script("exit $((WORKER * 3))")
    done = cloud.run("run_all.sh", *words)
    assert done.returncode == 3 and "exit code 3" in done.stderr
    # And a run that ended can run again.
    assert cloud.run("run_all.sh", *cloud.script("exit 0")).returncode == 0


def test_nothing_starts_twice(cloud):
    cloud.active()
    wait = f"echo once; until [ -e {cloud.stub}/go ]; do sleep 0.1; done"
    words = cloud.script(wait)
    assert cloud.run("run_all.sh", *words, DETACH="1").returncode == 0
    other = cloud.run("run_all.sh", "true", DETACH="1")
    assert other.returncode == 1 and "another command runs: trial" in other.stderr
    assert cloud.run("run_all.sh", "true", DETACH="1", RUN_NAME="b").returncode == 1
    again = cloud.run("run_all.sh", *words, DETACH="1")
    assert again.returncode == 0 and again.stdout.count("trial runs already") == 2
    waiting = subprocess.Popen(
        cloud.command("run_all.sh", *words), env=cloud.env, stderr=subprocess.DEVNULL
    )
    waited(
        lambda: any("state.sh trial" in " ".join(call) for call in cloud.calls()),
        "a look",
    )
    (cloud.stub / "go").touch()
    assert waiting.wait(timeout=60) == 0
    for home in cloud.homes:
        assert (home / "runs/trial/log").read_text().splitlines().count("once") == 1


def test_stop_lets_a_command_end_and_does_not_call_it_done(cloud):
    cloud.active()
    started = cloud.stub / "started"
    words = cloud.script(
        f"trap 'echo saved; exit 0' TERM\necho $WORKER >>{started}\n"
        "while true; do sleep 0.1; done"
    )
    waiting = subprocess.Popen(
        cloud.command("run_all.sh", *words),
        env=cloud.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    waited(lambda: started.exists() and started.read_text().count("\n") == 2, "start")
    assert cloud.run("stop_all.sh").stdout.count("asked to end") == 2
    # 128 + SIGTERM, although the command itself ended with 0.
    assert waiting.wait(timeout=60) == 143
    assert "saved" in (cloud.homes[1] / "runs/trial/log").read_text()
    assert "nothing runs" in cloud.run("stop_all.sh").stdout


@pytest.mark.parametrize("code", [0, 2, 3])
def test_supervision_keeps_the_exit_code(code):
    supervise = FOLDER / "on_worker/supervise.sh"
    done = subprocess.run(["bash", supervise, "bash", "-c", f"exit {code}"])
    assert done.returncode == code


def test_worker_that_answers_without_a_state_cannot_be_asked(cloud):
    cloud.active()
    assert cloud.run("setup_all.sh").returncode == 0
    for home in cloud.homes:
        (state,) = home.rglob("on_worker/state.sh")
        state.write_text("echo nothing to say\n")
    assert cloud.run("run_all.sh", "true").returncode == 75


def test_preempted_run_goes_on_a_new_tpu_until_it_is_done(cloud):
    # The first TPU is taken away while the command runs; the bucket outlives it.
    (cloud.stub / "future.json").write_text('["WAITING_FOR_RESOURCES", "ACTIVE"]')
    checkpoint, request = cloud.stub / "checkpoint", cloud.stub / "request.json"
    words = cloud.script(
        f"if [ -e {checkpoint} ]; then exit 0; fi\n"
        f'if [ "$WORKER" = 1 ]; then touch {checkpoint}; sleep 0.3\n'
        f'  echo \'["SUSPENDING", "SUSPENDED"]\' >{request}; fi\n'
        "exit 3"
    )
    done = cloud.run("keep_running.sh", *words, SPOT="1", DELETE_AT_END="1")
    assert done.returncode == 0, done.stderr
    assert "the TPU is gone" in done.stderr
    verbs = [verb for verb in cloud.verbs() if verb in ("create", "delete")]
    assert verbs == ["create", "delete", "create", "delete"]
    assert not (cloud.stub / "request.json").exists()
    logs = cloud.repo / "runs/tpu/trial/logs"
    assert "exit code 0" in (logs / "1.log").read_text()


def test_command_that_fails_on_a_good_tpu_is_given_up(cloud):
    words = cloud.script("exit 7")
    done = cloud.run("keep_running.sh", *words, MAX_FAILURES="2")
    assert done.returncode == 7
    assert "exit code 7 2 times" in done.stderr and "costs: delete.sh" in done.stderr
    assert (cloud.homes[0] / "runs/trial/log").read_text().count("=== exit") == 2


def test_bad_input_is_not_tried_again(cloud):
    done = cloud.run("keep_running.sh", *cloud.script("exit 2"))
    assert done.returncode == 2 and "input is at fault" in done.stderr
    assert (cloud.homes[0] / "runs/trial/log").read_text().count("=== exit") == 1


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_interrupted_loop_leaves_the_run_and_takes_it_up_again(number, cloud):
    words = cloud.script(f"until [ -e {cloud.stub}/go ]; do sleep 0.1; done")
    # A long pause: the signal must not wait for its end.
    loop = subprocess.Popen(
        cloud.command("keep_running.sh", *words),
        env={**cloud.env, "POLL_SECONDS": "600"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    folders = [home / "runs/trial" for home in cloud.homes]
    waited(lambda: all((folder / "pid").exists() for folder in folders), "start")
    # In the middle of the pause, after the first question to the workers.
    question = "state.sh trial"
    waited(
        lambda: any(question in " ".join(words) for words in cloud.calls()), "a look"
    )
    time.sleep(1)
    # As Ctrl-C does it: to all processes of the terminal.
    os.killpg(loop.pid, number)
    _, said = loop.communicate(timeout=60)
    assert loop.returncode == 130 and "TPU and command go on" in said
    assert not any((folder / "code").exists() for folder in folders)
    (cloud.stub / "go").touch()
    assert cloud.run("keep_running.sh", *words).returncode == 0
    assert cloud.verbs().count("create") == 1
