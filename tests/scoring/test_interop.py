"""Our client against a server of other people's."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.models.chat import read_chat_layout
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.chat import ChatCompleter
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.completions import LocalCompleter
from jaxcontam.scoring.load import load
from tests.support.served_model import TEXTS, save

WHY = "pip install -e '.[test,serving]'"

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
)


@pytest.fixture(scope="module")
def served_by_torch(tmp_path_factory):
    """(base URL, name) of `transformers serve`, a process of its own."""
    command = shutil.which("transformers", path=os.path.dirname(sys.executable))
    for package in ("torch", "fastapi", "uvicorn"):
        pytest.importorskip(package, reason=WHY)
    if command is None:
        pytest.skip(WHY)
    base = tmp_path_factory.mktemp("torch")
    folder = save(base / "tiny", chat_template=TEMPLATE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (base / "log").open("w") as log,
        subprocess.Popen(
            [command, "serve", str(folder), *address],
            **{"stdout": log, "stderr": subprocess.STDOUT, "cwd": base},
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        ) as running,
    ):
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}/health", running)
            yield f"http://127.0.0.1:{port}/v1", str(folder)
        finally:
            running.terminate()


def _wait_until_healthy(url, process):
    """Until it answers; a process that ends, or minutes, are a failure."""
    for _ in range(1200):
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise AssertionError("the server does not answer")


@pytest.mark.slow
def test_a_server_answers_a_chat_with_the_words_of_the_local_model(
    served_by_torch, tmp_path
):
    url, name = served_by_torch
    # It drops log-probabilities.
    with pytest.raises(InputError, match="no log-probabilities of the prompt") as e:
        load(f"api:{url}#{name}")
    assert "replicate" in e.value.hint
    assert "\n" not in str(e.value)
    with ApiClient(ApiModel(url, name), api_key=None) as client:
        theirs = ChatCompleter(client).complete(TEXTS, max_tokens=8)
    assert not any(one.refused for (one,) in theirs)
    ours = LocalCompleter(
        checkpoint=load_checkpoint(name),
        journal=Journal(tmp_path / "journal.jsonl"),
        chat=read_chat_layout(Path(name)),
    ).complete(TEXTS, max_tokens=8)
    assert [one.text for (one,) in ours] == [one.text for (one,) in theirs]
