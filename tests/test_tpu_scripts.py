"""Scripts for TPU VMs, and what all scripts for TPUs share; nothing touches a cloud."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tpu_cloud import (
    FOLDER,
    ROOT,
    SCRIPTS,
    SETTINGS,
    SOURCED,
    TOOLS,
    WORDS,
    cloud_in,
    waited,
)

from train.earlier import code_version

ARGUMENTS = {
    "run_all.sh": ["true"],
    "keep_running.sh": ["true"],
    "jobset_run.sh": ["true"],
    "xpk_run.sh": ["true"],
    "fetch_out.sh": ["runs/audit"],
}


@pytest.fixture
def cloud(tmp_path):
    with cloud_in(tmp_path) as made:
        yield made


def test_shellcheck_has_nothing_to_say():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    files = [*FOLDER.glob("*.sh"), *FOLDER.glob("on_worker/*.sh")]
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR", *files, FOLDER / "env.example"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_dry_run_prints_commands_and_calls_nothing(script, cloud):
    done = cloud.run(script, *ARGUMENTS.get(script, []), DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\+ (gcloud|xpk|kubectl|docker) ", done.stderr, re.MULTILINE)
    assert not any(cloud.calls(tool) for tool in TOOLS)
    assert not (cloud.repo / "runs").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_missing_setting_is_one_line_and_a_hint(script, cloud):
    nothing = {name: "" for name in SETTINGS if name != "POLL_SECONDS"}
    done = cloud.run(script, *ARGUMENTS.get(script, []), **nothing)
    assert done.returncode == 2
    first, hint = done.stderr.splitlines()
    assert re.fullmatch(rf"tpu_scripts/{script}: error: \w+ is not set", first)
    assert "env.example" in hint


@pytest.mark.parametrize("script", ["run_all.sh", "keep_running.sh", "fetch_out.sh"])
def test_missing_command_is_one_line_and_a_hint(script, cloud):
    done = cloud.run(script)
    assert done.returncode == 2 and done.stderr.count("\n") == 2
    assert not cloud.calls()


def test_env_file_gives_settings_and_the_environment_wins(cloud):
    text = (FOLDER / "env.example").read_text()
    text = text.replace("PROJECT:-}", "PROJECT:-of-file}")
    text = text.replace("ZONE:-us-central2-b}", "ZONE:-of-file}")
    (cloud.repo / "tpu_scripts/env").write_text(text)
    del cloud.env["PROJECT"]
    done = cloud.run("create_queued.sh", DRY_RUN="1")
    assert "--project=of-file" in done.stderr
    assert "--zone=us-central2-b" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["gcloud", "compute", "tpus", "tpu-vm", "sssh", "x"],
        ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "x", "--wrker=all"],
        ["gcloud", "compute", "tpus", "queued-resources", "create", "x", "--version=1"],
        ["gcloud", "storage", "rsync", "gs://one"],
        ["xpk", "workload", "create", "--cluster=x"],
    ],
)
def test_stub_refuses_what_the_table_does_not_know(words, cloud):
    done = subprocess.run(words, env=cloud.env, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("ERROR")
    (cloud.stub / "refused").unlink()


def test_create_asks_once(cloud):
    assert cloud.run("create_queued.sh").returncode == 0
    (create,) = [words for words in cloud.calls() if words[3] == "create"]
    assert "--spot" not in create and "--reserved" not in create
    again = cloud.run("create_queued.sh")
    assert again.returncode == 0 and "asked for already" in again.stderr
    assert cloud.verbs() == ["create"]


@pytest.mark.parametrize(
    ("setting", "flag"),
    [
        ({"SPOT": "1"}, "--spot"),
        ({"RESERVED": "1"}, "--reserved"),
        ({"VALID_UNTIL": "6h"}, "--valid-until-duration=6h"),
        ({"SERVICE_ACCOUNT": "a@b"}, "--service-account=a@b"),
    ],
)
def test_settings_become_flags_of_the_request(setting, flag, cloud):
    assert cloud.run("create_queued.sh", **setting).returncode == 0
    assert flag in cloud.calls()[-1]


@pytest.mark.parametrize("state", ["SUSPENDED", "FAILED"])
def test_lost_request_is_deleted_and_made_anew(state, cloud):
    cloud.states("SUSPENDING", state)
    assert cloud.run("create_queued.sh", SPOT="1").returncode == 0
    assert cloud.verbs() == ["delete", "create"]


def test_error_that_is_not_absence_asks_for_nothing(cloud):
    cloud.tool(cloud.bin / "gcloud", "echo 'ERROR: PERMISSION_DENIED' >&2; exit 1")
    done = cloud.run("create_queued.sh")
    assert done.returncode != 0 and "PERMISSION_DENIED" in done.stderr
    assert "create" not in done.stderr.replace("create_queued", "")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"], 0),
        (["PROVISIONING", "FAILED"], 1),
        (["SUSPENDED"], 1),
    ],
)
def test_wait_ends_where_the_request_does(states, code, cloud):
    cloud.states(*states)
    done = cloud.run("wait_ready.sh")
    assert done.returncode == code
    assert all(f"is {state}" in done.stderr for state in states)


def code_of(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.earlier._ROOT", root)
        code = code_version()
    assert code is not None and re.fullmatch("[0-9a-f]{40}[+][0-9a-f]{8}", code)
    return code


def test_setup_carries_edits_and_new_files_but_nothing_ignored(cloud):
    assert cloud.run("create_queued.sh").returncode == 0
    (cloud.repo / ".gitignore").write_text("/tpu_scripts/env\n")
    (cloud.repo / "two words.txt").write_text("first")
    git = ["git", "-C", cloud.repo]
    subprocess.run([*git, "add", "--all"], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, *author, "commit", "-q", "-m", "first"], check=True)
    (cloud.repo / "two words.txt").write_text("edited")
    (cloud.repo / "new.txt").write_text("")
    for _ in range(2):
        done = cloud.run("setup_all.sh")
        assert done.returncode == 0, done.stderr
    for home in cloud.homes:
        assert (home / "jaxcontam/two words.txt").read_text() == "edited"
        assert (home / "jaxcontam/new.txt").exists()
        assert not (home / "jaxcontam/tpu_scripts/env").exists()
        # A copy has no .git, and is of the same code.
        assert code_of(home / "jaxcontam") == code_of(cloud.repo)
    install = next(words for words in cloud.calls("uv") if words[0] == "pip")
    assert install[-3].endswith("constraints.txt")
    assert install[-2:] == ["-e", f"{cloud.homes[0]}/jaxcontam[tpu]"]


def test_setup_leaves_a_running_command_alone(cloud):
    cloud.active()
    words = cloud.script(f"until [ -e {cloud.stub}/go ]; do sleep 0.1; done")
    assert cloud.run("run_all.sh", *words, DETACH="1").returncode == 0
    done = cloud.run("setup_all.sh")
    assert done.returncode == 0 and "a command runs" in done.stderr
    assert "scp" not in cloud.verbs()
    (cloud.stub / "go").touch()
    assert cloud.run("wait_run.sh").returncode == 0


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
    (cloud.stub / "go").touch()
    assert cloud.run("wait_run.sh").returncode == 0
    for home in cloud.homes:
        assert (home / "runs/trial/log").read_text().splitlines().count("once") == 1


def test_stop_lets_a_command_end_and_does_not_call_it_done(cloud):
    cloud.active()
    started = cloud.stub / "started"
    words = cloud.script(
        f"trap 'echo saved; exit 0' TERM\necho $WORKER >>{started}\n"
        "while true; do sleep 0.1; done"
    )
    assert cloud.run("run_all.sh", *words, DETACH="1").returncode == 0
    waited(lambda: started.exists() and started.read_text().count("\n") == 2, "start")
    assert cloud.run("stop_all.sh").stdout.count("asked to end") == 2
    # 128 + SIGTERM, although the command itself ended with 0.
    assert cloud.run("wait_run.sh").returncode == 143
    assert "saved" in (cloud.homes[1] / "runs/trial/log").read_text()
    assert "nothing runs" in cloud.run("stop_all.sh").stdout


@pytest.mark.parametrize("code", [0, 2, 3])
def test_supervision_keeps_the_exit_code(code):
    supervise = FOLDER / "on_worker/supervise.sh"
    done = subprocess.run(["bash", supervise, "bash", "-c", f"exit {code}"])
    assert done.returncode == code


def test_run_on_a_new_tpu_is_absent(cloud):
    cloud.active()
    done = cloud.run("wait_run.sh")
    assert done.returncode == 75 and "knows nothing" in done.stderr


def test_worker_that_answers_without_a_state_cannot_be_asked(cloud):
    cloud.active()
    assert cloud.run("setup_all.sh").returncode == 0
    for home in cloud.homes:
        (state,) = home.rglob("on_worker/state.sh")
        state.write_text("echo nothing to say\n")
    assert cloud.run("wait_run.sh").returncode == 75


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


def test_status_and_logs_name_every_worker(cloud):
    cloud.active()
    words = cloud.script("echo hello from $WORKER")
    assert cloud.run("run_all.sh", *words).returncode == 0
    status = cloud.run("status.sh")
    assert "TPU jaxcontam: ACTIVE" in status.stdout
    assert {"jaxcontam-run 0 exited 0", "jaxcontam-run 1 exited 0"} <= set(
        status.stdout.splitlines()
    )
    assert cloud.run("fetch_logs.sh").returncode == 0
    logs = cloud.repo / "runs/tpu/trial/logs"
    for worker in range(2):
        assert f"hello from {worker}" in (logs / f"{worker}.log").read_text()
    assert list((logs / "bucket").glob("*.log"))


def test_reports_come_from_worker_0(cloud):
    cloud.active()
    out = cloud.homes[0] / "jaxcontam/runs/audit"
    out.mkdir(parents=True)
    (out / "report.json").write_text("{}")
    assert cloud.run("fetch_out.sh", "runs/audit").returncode == 0
    assert (cloud.repo / "runs/tpu/trial/audit/report.json").read_text() == "{}"


def test_delete_twice_is_once(cloud):
    cloud.active()
    assert cloud.run("delete.sh", ASYNC="1").returncode == 0
    assert "--async" in cloud.calls()[-1] and "--force" in cloud.calls()[-1]
    assert "nothing to delete" in cloud.run("delete.sh").stderr
    assert cloud.verbs() == ["delete"]


def test_bucket_is_mounted_for_reading(cloud):
    cloud.tool(cloud.bin / "mountpoint", "exit 1")
    cloud.tool(cloud.bin / "sudo", "exit 0")
    cloud.active()
    assert cloud.run("mount_bucket.sh").returncode == 0
    mount = ["--implicit-dirs", "-o", "ro", "my-bucket", "/mnt/jaxcontam"]
    assert cloud.calls("gcsfuse") == [mount, mount]


@pytest.mark.parametrize("launch", ["keep_running.sh", "jobset_run.sh", "xpk_run.sh"])
def test_training_takes_the_words_of_the_paper_s_experiment(launch, cloud):
    from eval.canaries import CANARIES
    from jaxcontam.cli import parse
    from train.pretrain import Pretrain

    if "checkpoints" not in Pretrain.__dataclass_fields__:
        pytest.skip("this checkout's train.pretrain has no --checkpoints")
    say = "import json, sys; print(json.dumps(sys.argv[1:]))"
    launcher = cloud.repo / "tpu_scripts" / launch
    launcher.write_text(f"exec {sys.executable} -S -c '{say}' \"$@\"")
    done = cloud.run("oren_1_4b.sh", LAUNCH=launch, MESH="data=2,model=2")
    words = json.loads(done.stdout)
    assert words[:3] == ["python", "-m", "train.pretrain"]
    made = parse(Pretrain, words[3:], prog="python -m train.pretrain")
    assert {Path(word).name for word in made.canaries} == {
        f"{name}.jsonl={canary.published}" for name, canary in CANARIES.items()
    }
    assert made.checkpoints == "gs://my-bucket/trial"
    assert made.preset == "1.4b" and made.background_tokens == 20_000_000_000
    assert made.distributed and made.mesh == "data=2,model=2"


def test_unknown_launcher_is_one_line_and_a_hint(cloud):
    done = cloud.run("oren_1_4b.sh", LAUNCH="run.sh")
    assert done.returncode == 2 and done.stderr.count("\n") == 2


def test_settings_of_a_user_stay_out_of_git():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(["git", "-C", ROOT, "check-ignore", "-q", "tpu_scripts/env"])
    assert done.returncode == 0


def test_readme_names_every_script_and_no_other():
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`(?:tpu_scripts/)?(\w+\.sh)", text))
    assert named - SOURCED >= set(SCRIPTS)
    there = {path.name for path in FOLDER.rglob("*.sh")}
    assert named <= there


def test_reports_reach_the_bucket_before_the_run_counts_as_ended(cloud):
    # The moment at which DELETE_AT_END deletes the TPU.
    cloud.tool(
        cloud.bin / "python", f'sleep 1; printf "%s\\n" "$@" >{cloud.stub}/saved'
    )
    cloud.active()
    words = cloud.script("mkdir -p runs/audit")
    assert cloud.run("run_all.sh", *words).returncode == 0
    script, folder, url = (cloud.stub / "saved").read_text().split()
    assert script.endswith("on_worker/save_reports.py") and folder == "runs"
    assert url.startswith("gs://my-bucket/trial/out/")
