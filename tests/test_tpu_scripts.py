"""Scripts for TPU VMs, and what all scripts for TPUs share; nothing touches a cloud."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tpu_cloud import (
    FOLDER,
    ROOT,
    SCRIPTS,
    SETTINGS,
    SOURCED,
    TOOLS,
    cloud_in,
)

from train.run_folder import code_version

ARGUMENTS = {
    "run_all.sh": ["true"],
    "keep_running.sh": ["true"],
    "jobset_run.sh": ["true"],
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
    assert re.search(r"^\+ (gcloud|kubectl) ", done.stderr, re.MULTILINE)
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


@pytest.mark.parametrize("script", ["run_all.sh", "keep_running.sh"])
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
    assert again.returncode == 0 and "is ACTIVE" in again.stderr
    assert cloud.verbs() == ["create"]


@pytest.mark.parametrize(
    ("setting", "flag"),
    [
        ({"SPOT": "1"}, "--spot"),
        ({"RESERVED": "1"}, "--reserved"),
        ({"VALID_UNTIL": "6h"}, "--valid-until-duration=6h"),
        ({"SERVICE_ACCOUNT": "a@b"}, "--service-account=a@b"),
        ({"INTERNAL_IPS": "1"}, "--internal-ips"),
        (
            {"ACCELERATOR_TYPE": "v6e-8", "ZONE": "us-east5-b"},
            "--runtime-version=v2-alpha-tpuv6e",
        ),
    ],
)
def test_settings_become_flags_of_the_request(setting, flag, cloud):
    assert cloud.run("create_queued.sh", **setting).returncode == 0
    (create,) = [words for words in cloud.calls() if words[3] == "create"]
    assert flag in create


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ACCELERATOR_TYPE": "v5litepod-64"}, "has v4 alone, not v5litepod-64"),
        ({"ACCELERATOR_TYPE": "v5p-8", "ZONE": "us-east5-a"}, None),
        ({"ZONE": "us-east5-a"}, "ZONE=us-east5-a has no v4"),
        ({"RUNTIME_VERSION": "v2-alpha-tpuv5"}, "v2-alpha-tpuv5 is not for v4-8"),
        (
            {
                "ACCELERATOR_TYPE": "v5p-8",
                "ZONE": "us-east5-a",
                "RUNTIME_VERSION": "v2-alpha-tpuv5-lite",
            },
            "v2-alpha-tpuv5-lite is not for v5p-8",
        ),
        ({"ACCELERATOR_TYPE": "h100-8"}, "ACCELERATOR_TYPE=h100-8 is no type"),
        ({"ACCELERATOR_TYPE": "v4"}, "ACCELERATOR_TYPE=v4 is no type"),
    ],
)
def test_type_zone_and_runtime_must_go_together(settings, message, cloud):
    done = cloud.run("create_queued.sh", **settings)
    if message is None:
        assert done.returncode == 0
        return
    assert done.returncode == 2 and message in done.stderr
    assert cloud.calls() == []


def test_vms_without_external_addresses_are_reached_within_their_network(cloud):
    cloud.active()
    cloud.run("run_all.sh", "true", INTERNAL_IPS="1", DETACH="1")
    (ssh,) = [words for words in cloud.calls() if words[3] == "ssh"]
    assert "--internal-ip" in ssh


def test_fewer_workers_than_the_type_has_are_told(cloud):
    cloud.active()
    done = cloud.run("run_all.sh", "true", ACCELERATOR_TYPE="v4-32")
    assert done.returncode == 75
    assert "2 of the 4 workers of v4-32 answer" in done.stderr


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


@pytest.mark.parametrize("states", [["WAITING_FOR_RESOURCES", "ACTIVE"], ["FAILED"]])
def test_create_waits_for_its_request_to_be_served_or_to_fail(states, cloud):
    (cloud.stub / "future.json").write_text(json.dumps(states))
    done = cloud.run("create_queued.sh")
    assert done.returncode == (75 if states == ["FAILED"] else 0)
    assert all(f"is {state}" in done.stderr for state in states)
    assert cloud.verbs() == ["create"]


def code_of(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.run_folder._ROOT", root)
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


def test_status_and_logs_name_every_worker(cloud):
    cloud.active()
    words = cloud.script("echo hello from $WORKER")
    assert cloud.run("run_all.sh", *words).returncode == 0
    status = cloud.run("status.sh")
    assert "TPU jaxcontam: ACTIVE" in status.stdout
    assert {"jaxcontam-run 0 exited 0", "jaxcontam-run 1 exited 0"} <= set(
        status.stdout.splitlines()
    )
    assert cloud.run("fetch.sh").returncode == 0
    logs = cloud.repo / "runs/tpu/trial/logs"
    for worker in range(2):
        assert f"hello from {worker}" in (logs / f"{worker}.log").read_text()
    assert list((logs / "bucket").glob("*.log"))


def test_reports_come_from_worker_0(cloud):
    cloud.active()
    out = cloud.homes[0] / "jaxcontam/runs/audit"
    out.mkdir(parents=True)
    (out / "report.json").write_text("{}")
    assert cloud.run("fetch.sh", "runs/audit").returncode == 0
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
    assert cloud.run("setup_all.sh").returncode == 0
    mount = ["--implicit-dirs", "-o", "ro", "my-bucket", "/mnt/jaxcontam"]
    assert cloud.calls("gcsfuse") == [mount, mount]


@pytest.mark.parametrize("launch", ["keep_running.sh", "jobset_run.sh"])
def test_training_takes_the_words_of_the_paper_s_experiment(launch, cloud):
    from eval.canaries.runs import CANARIES
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


def test_data_of_the_experiment_are_prepared_before_it_by_the_same_words(cloud):
    settings = {"LAUNCH": "prepare", "PREPARED": "gs://my-bucket/prepared"}
    done = cloud.run("oren_1_4b.sh", DRY_RUN="1", **settings)
    assert done.returncode == 0 and "python -m train.prepare" in done.stderr
    assert "--prepared gs://my-bucket/prepared" in done.stderr
    assert cloud.run("oren_1_4b.sh", LAUNCH="prepare").returncode == 2


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
