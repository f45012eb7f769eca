"""Scripts for TPUs, run against stand-ins that know each tool's flags.

Nothing here touches a cloud: tests/tpu_stub/tool.py plays gcloud, xpk, kubectl, docker
and uv, refuses what the real tools would refuse, and runs the commands of ssh in
folders that stand for the workers' homes.
"""

import importlib.util
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
import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tpu_scripts"
STUB = ROOT / "tests/tpu_stub"
SOURCED = {"common.sh", "gke.sh"}
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh") if path.name not in SOURCED)
TOOLS = sorted(set(json.loads((STUB / "flags.json").read_text())) - {"source"})
SETTINGS = {
    "PROJECT": "my-project",
    "ZONE": "us-central2-b",
    "BUCKET": "my-bucket",
    "RUN_NAME": "trial",
    "CLUSTER": "my-cluster",
    "IMAGE": "example.com/jaxcontam:1",
    "POLL_SECONDS": "0.2",
}
# What has gone wrong on the way to a shell before.
WORDS = ["two words", "it's", '"', "$HOME", "`id`", "a\nb", "", "*", "~", "\\", "é;&|"]
ARGUMENTS = {
    "run_all.sh": ["true"],
    "keep_running.sh": ["true"],
    "jobset_run.sh": ["true"],
    "xpk_run.sh": ["true"],
    "fetch_out.sh": ["runs/audit"],
}


class Cloud:
    """A copy of the scripts in a checkout of its own, beside the stub's folder."""

    def __init__(self, folder):
        self.repo = folder / "repo"
        self.stub = folder / "stub"
        self.stub.mkdir()
        shutil.copytree(
            FOLDER, self.repo / "tpu_scripts", ignore=shutil.ignore_patterns("env")
        )
        shutil.copy(FOLDER / "env.example", self.repo / "tpu_scripts/env")
        subprocess.run(["git", "init", "-q", self.repo], check=True)
        tools = folder / "bin"
        tools.mkdir()
        for name in TOOLS:
            self.tool(
                tools / name, f'exec {sys.executable} -S {STUB}/tool.py {name} "$@"'
            )
        self.tool(tools / "mountpoint", "exit 0")
        self.bin = tools
        self.env = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(folder),
            "STUB": str(self.stub),
            **SETTINGS,
        }

    @staticmethod
    def tool(path, line):
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def command(self, script, *words):
        return ["bash", str(self.repo / "tpu_scripts" / script), *words]

    def run(self, script, *words, **env):
        return subprocess.run(
            self.command(script, *words),
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self, tool="gcloud"):
        path = self.stub / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words[1:] for words in map(json.loads, lines) if words[0] == tool]

    def verbs(self):
        """What was done with the TPU, in order, questions left out."""
        known = ("create", "delete", "scp", "ssh")
        return [words[3] for words in self.calls() if words[3] in known]

    def states(self, *states):
        """States of the queued resource, one for each time that it is asked for."""
        (self.stub / "request.json").write_text(json.dumps(states))

    def active(self):
        """A TPU that is there and set up."""
        self.states("ACTIVE")
        for home in self.homes:
            home.mkdir(parents=True)
            shutil.copytree(self.repo / "tpu_scripts", home / "jaxcontam/tpu_scripts")

    @property
    def homes(self):
        return [self.stub / "workers" / str(worker) for worker in range(2)]

    def script(self, text):
        """A command for workers: a shell script outside of their homes."""
        path = self.stub / "command.sh"
        path.write_text(text)
        return ["bash", str(path)]


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    yield made
    # Scripts go on after a call that fails, as a worker may be gone; not after this.
    refused = made.stub / "refused"
    assert not refused.exists(), refused.read_text()


def waited(condition, what):
    """Wait for a detached process; the limit is for a machine that hangs."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited half a minute for {what}")


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


def test_setup_carries_edits_and_new_files_but_nothing_ignored(cloud):
    assert cloud.run("create_queued.sh").returncode == 0
    (cloud.repo / ".gitignore").write_text("/tpu_scripts/env\n")
    (cloud.repo / "two words.txt").write_text("first")
    git = ["git", "-C", cloud.repo]
    subprocess.run([*git, "add", "--all"], check=True)
    (cloud.repo / "two words.txt").write_text("edited")
    (cloud.repo / "new.txt").write_text("")
    for _ in range(2):
        done = cloud.run("setup_all.sh")
        assert done.returncode == 0, done.stderr
    for home in cloud.homes:
        assert (home / "jaxcontam/two words.txt").read_text() == "edited"
        assert (home / "jaxcontam/new.txt").exists()
        assert not (home / "jaxcontam/tpu_scripts/env").exists()
    install = next(words for words in cloud.calls("uv") if words[0] == "pip")
    assert install[-4].endswith("constraints.txt")
    assert install[-3:] == ["-e", f"{cloud.homes[0]}/jaxcontam[tpu]", "gcsfs"]


def test_setup_leaves_a_running_command_alone(cloud):
    cloud.active()
    words = cloud.script(f"until [ -e {cloud.stub}/go ]; do sleep 0.1; done")
    assert cloud.run("run_all.sh", *words, DETACH="1").returncode == 0
    done = cloud.run("setup_all.sh")
    assert done.returncode == 0 and "a command runs" in done.stderr
    assert "scp" not in cloud.verbs()
    (cloud.stub / "go").touch()
    assert cloud.run("wait_run.sh").returncode == 0


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
    waited(lambda: (cloud.stub / "bucket/my-bucket/trial/logs").exists(), "a saved log")
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


def jobset_of(cloud, *words, **env):
    done = cloud.run("jobset_run.sh", *words, **env)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load((cloud.stub / "applied.yaml").read_text())


def test_jobset_says_the_slice_and_the_words(cloud):
    words = [*WORDS, "${IMAGE}", "$$", "# no comment", "- x: y"]
    made = jobset_of(cloud, *words, GKE_QUEUE="multislice-queue")
    assert made["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert made["kind"] == "JobSet" and made["metadata"]["name"] == "trial"
    labels = made["metadata"]["labels"]
    assert labels == {"kueue.x-k8s.io/queue-name": "multislice-queue"}
    (part,) = made["spec"]["replicatedJobs"]
    job = part["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 16
    assert part["replicas"] == 1 and job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    # Kubernetes takes a failure policy of pods with this restart policy alone.
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["args"] == words and "command" not in container
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert container["resources"]["requests"] == {"google.com/tpu": 4}
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert container["env"] == [{"name": "RUN_URL", "value": "gs://my-bucket/trial"}]


@pytest.mark.parametrize("spot", ["0", "1"])
def test_jobset_asks_for_spot_nodes_where_told(spot, cloud):
    made = jobset_of(cloud, "true", SPOT=spot)
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    nodes = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "8x8",
    }
    if spot == "1":
        nodes["cloud.google.com/gke-spot"] = "true"
    assert pod["nodeSelector"] == nodes
    assert made["metadata"]["labels"] == {}


@pytest.mark.parametrize("script", ["jobset_run.sh", "xpk_run.sh"])
@pytest.mark.parametrize(
    ("found", "does"),
    [("", ["run"]), ("trial ", []), ("trial Failed", ["delete", "run"])],
)
def test_run_on_gke_starts_once(script, found, does, cloud):
    (cloud.stub / "jobset").write_text(found)
    done = cloud.run(script, "true")
    assert done.returncode == 0, done.stderr
    did = [words[0] for words in cloud.calls("kubectl") if words[0] != "get"]
    did += ["apply" for _ in cloud.calls("xpk")]
    assert did == ["apply" if verb == "run" else verb for verb in does]


def test_xpk_command_is_read_back_as_the_words(cloud):
    done = cloud.run("xpk_run.sh", *WORDS, XPK_STORAGE="corpora")
    assert done.returncode == 0, done.stderr
    (call,) = cloud.calls("xpk")
    assert "--num-slices=1" in call and "--storage=corpora" in call
    (command,) = (word for word in call if word.startswith("--command="))
    assert "\n" not in command
    line = command.removeprefix("--command=")
    line = line.replace("bash /app/tpu_scripts/on_worker/in_pod.sh", "printf '%s\\0'")
    read = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert read.stdout.split("\0")[:-1] == WORDS


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
    assert made.checkpoints == "gs://my-bucket/trial/checkpoints"
    assert made.preset == "1.4b" and made.background_tokens == 20_000_000_000
    assert made.distributed and made.mesh == "data=2,model=2"


def test_unknown_launcher_is_one_line_and_a_hint(cloud):
    done = cloud.run("oren_1_4b.sh", LAUNCH="run.sh")
    assert done.returncode == 2 and done.stderr.count("\n") == 2


def test_logs_of_gke_are_one_file_a_pod(cloud):
    (cloud.stub / "pod.log").write_text("hello\n")
    assert cloud.run("gke_logs.sh").returncode == 0
    logs = cloud.repo / "runs/tpu/trial/logs"
    assert len(list(logs.glob("trial-slice-0-*.log"))) == 2
    assert all(path.read_text() == "hello\n" for path in logs.iterdir())


def test_pod_saves_reports_of_the_first_host_alone(tmp_path):
    app = tmp_path / "app"
    shutil.copytree(FOLDER, app / "tpu_scripts")
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    entry = ["bash", app / "tpu_scripts/on_worker/in_pod.sh"]
    command = "mkdir -p runs/a && echo {} >runs/a/report.json; exit 3"
    for worker in "01":
        done = subprocess.run(
            [*entry, "bash", "-c", command],
            env={
                "PATH": f"{python.parent}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(sys.path),
                "RUN_URL": f"file://{tmp_path}/bucket{worker}",
                "TPU_WORKER_ID": worker,
            },
        )
        assert done.returncode == 3
    assert (tmp_path / "bucket0/out/a/report.json").read_text() == "{}\n"
    assert not (tmp_path / "bucket1").exists()


def test_large_files_are_left_and_named(tmp_path):
    path = FOLDER / "on_worker/save_reports.py"
    spec = importlib.util.spec_from_file_location("save_reports", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/stream.npy").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    (tmp_path / "out/report.json").write_text("{}")
    target = tmp_path / "bucket"
    assert module.save_reports(tmp_path / "out", f"file://{target}") == ["stream.npy"]
    assert [path.name for path in target.iterdir()] == ["report.json"]


def test_image_holds_what_its_file_names():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    version = re.search(r"Python ([\d.]+):", (ROOT / "constraints.txt").read_text())
    assert version is not None and f"FROM python:{version[1]}-slim" in lines
    copied = [
        word
        for line in lines
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    ]
    assert all((ROOT / word).exists() for word in copied)
    assert "tpu_scripts/env" in (FOLDER / "Dockerfile.dockerignore").read_text().split()


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
