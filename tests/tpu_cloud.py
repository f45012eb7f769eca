"""A cloud without one: the scripts for TPUs in a checkout of their own, and stand-ins.

tpu_stub/tool.py plays gcloud, kubectl, uv and gcsfuse, refuses what the real tools
would refuse, and runs the commands of ssh in folders that stand for workers' homes.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tpu_scripts"
STUB = ROOT / "tests/tpu_stub"
SOURCED = {"common.sh"}
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh") if path.name not in SOURCED)
TOOLS = sorted(set(json.loads((STUB / "flags.json").read_text())) - {"source"})
SETTINGS = {
    "PROJECT": "my-project",
    "ZONE": "us-central2-b",
    "BUCKET": "my-bucket",
    "RUN_NAME": "trial",
    "IMAGE": "example.com/jaxcontam:1",
    "POLL_SECONDS": "0.2",
}
# What has gone wrong on the way to a shell before.
WORDS = ["two words", "it's", '"', "$HOME", "`id`", "a\nb", "", "*", "~", "\\", "é;&|"]


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
        """Of the first TPU."""
        return [self.stub / "workers/0" / str(worker) for worker in range(2)]

    def script(self, text):
        """A command for workers: a shell script outside of their homes."""
        path = self.stub / "command.sh"
        path.write_text(text)
        return ["bash", str(path)]


@contextlib.contextmanager
def cloud_in(folder: Path) -> Iterator[Cloud]:
    """A cloud for one test; no script may have asked it for what it does not know."""
    made = Cloud(folder)
    yield made
    # Scripts go on after a call that fails, as a worker may be gone; not after this.
    refused = made.stub / "refused"
    assert not refused.exists(), refused.read_text()


def waited(condition: Callable[[], bool], what: str) -> None:
    """Wait for a detached process; the limit is for a machine that hangs."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited half a minute for {what}")
