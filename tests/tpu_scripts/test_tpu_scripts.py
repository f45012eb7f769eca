"""`tpu_scripts`: one line of flags for all launchers, which SkyPilot reads."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import tyro

from train.pretrain import Pretrain

FOLDER = Path(__file__).resolve().parents[2] / "tpu_scripts"


def copy_that_writes_its_words(tmp_path, ending):
    """The script in a tree of its own, and a `python` that keeps what it is asked."""
    script = tmp_path / "tpu_scripts/oren_1_4b.sh"
    script.parent.mkdir()
    script.write_text((FOLDER / "oren_1_4b.sh").read_text())
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\n{ending}\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return script, {**os.environ, "PYTHON": str(python), "BUCKET": "texts"}


@pytest.mark.parametrize("step", ["prepare", "pretrain"])
def test_the_flags_of_both_steps_are_those_of_one_run(tmp_path, step):
    script, env = copy_that_writes_its_words(tmp_path, "")
    more = {"MESH": "data=16,fsdp=4", "MICRO_BATCHES": "1", "CODE_VERSION": "abc"}
    subprocess.run(["bash", script, step], env=env | more, check=True)
    module, *words = (tmp_path / "words").read_text().splitlines()[1:]
    assert module == "train.pretrain"
    run = tyro.cli(Pretrain, args=words)
    assert (run.preset, run.background_tokens) == ("1.4b", 20_000_000_000)
    assert run.prepared == "gs://texts/oren/prepared"
    assert len(run.canaries) == 10
    assert run.canaries[-2:] == (
        "/bucket/canaries/mmlu_professional_psychology.jsonl=50",
        "/bucket/canaries/mmlu_high_school_psychology.jsonl=100",
    )
    trains = step == "pretrain"
    assert run.distributed == trains != run.stop_after_data
    assert run.checkpoints == ("gs://texts/oren" if trains else None)
    assert run.mesh == ("data=16,fsdp=4" if trains else None)
    assert (tmp_path / "code-version.txt").read_text() == "abc\n"


def test_training_that_sigterm_ended_well_is_not_done(tmp_path):
    ending = f"trap 'exit 0' TERM\necho >{tmp_path}/ready\nsleep 60 &\nwait"
    script, env = copy_that_writes_its_words(tmp_path, ending)
    os.mkfifo(tmp_path / "ready")
    with subprocess.Popen(["bash", script, "pretrain"], env=env) as run:
        (tmp_path / "ready").read_text()
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=60) == 143


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ("oren_1_4b.sh pretrain", "BUCKET=NAME"),
        ("oren_1_4b.sh", "BUCKET=NAME"),
        ("tpu_vm.sh up", "PROJECT is not set"),
    ],
)
def test_without_its_settings_a_script_does_nothing(tmp_path, words, setting):
    # Neither gcloud nor python is there to be asked.
    done = subprocess.run(
        ["/bin/bash", *words.split()],
        cwd=FOLDER,
        env={"PATH": "/bin:/usr/bin", "PYTHON": str(tmp_path / "absent")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and setting in done.stderr
