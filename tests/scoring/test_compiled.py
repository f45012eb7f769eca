"""Compiled programs on disk: where they lie, who reads them, and equal bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jaxcontam.scoring import identity
from jaxcontam.scoring.identity import compiled_folder, keep_compiled

ROOT = Path(__file__).resolve().parents[2]

# Scores one batch and says how much was compiled, where, and the scores' bits.
PROCESS = """
import json
import jax
import numpy as np
from jaxcontam.scoring.identity import keep_compiled
from jaxcontam.scoring.local import local_scorer
from tests.support.served_model import decoder

counts = {"hits": 0, "misses": 0}
def count(name, **_):
    for end in counts:
        counts[end] += name == "/jax/compilation_cache/cache_" + end
jax.monitoring.register_event_listener(count)
keep_compiled()
(scores,) = local_scorer(decoder()).tokens([np.arange(30, dtype=np.int32)])
folder = jax.config.jax_compilation_cache_dir
print(json.dumps(counts | {"bits": scores.tobytes().hex(), "folder": folder}))
"""


def said(cache, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    env |= {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)} | settings
    how = {"env": env, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", PROCESS], **how)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_second_process_compiles_nothing_and_gives_the_same_bits(tmp_path):
    settings = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    first, second = said(tmp_path, **settings), said(tmp_path, **settings)
    # Hits of the first process are programs that it needs twice.
    assert first["misses"] > first["hits"]
    assert second["hits"] == first["hits"] + first["misses"]
    assert second["misses"] == 0
    assert second["bits"] == first["bits"]
    assert Path(first["folder"]).parent == tmp_path / "jaxcontam/xla"
    # A folder that the user chose stays.
    chosen = str(tmp_path / "chosen")
    found = said(tmp_path / "cache", JAX_COMPILATION_CACHE_DIR=chosen)
    assert found["folder"] == chosen
    assert not (tmp_path / "cache/jaxcontam/xla").exists()


def test_cache_folder_that_is_a_file_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        keep_compiled()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_cpus_and_core_counts_have_folders_of_their_own(monkeypatch):
    here = compiled_folder()
    assert compiled_folder() == here
    monkeypatch.setattr(identity, "cpu_kind", lambda: "another CPU")
    elsewhere = compiled_folder()
    cores = {*range(99)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    assert len({here, elsewhere, compiled_folder()}) == 3
