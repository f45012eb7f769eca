"""train.pretrain on several processes: one run, whatever their number."""

import re
import shutil
import signal
import time

import numpy as np
import pytest

from jaxcontam.models.checkpoint import load_checkpoint
from tests.support.pretrain_processes import finish_all, start_all
from tests.support.train_corpus import write_corpus
from train.checkpoints import saved_steps
from train.export import export
from train.manifest import read_manifest
from train.report import read_rows

# Minutes: processes of their own, which compile everything again.
pytestmark = [pytest.mark.unoptimised, pytest.mark.slow]


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory):
    """Some 500 steps: long enough for a signal to come between two of them."""
    return write_corpus(tmp_path_factory.mktemp("long"), 1000)


def words(corpus, *more):
    return [
        *("--corpus", str(corpus[0]), "--preset", "pulse", "--seed", "3"),
        # At the rate of the preset, rounding grows a hundredfold every ten steps.
        *("--peak-rate", "0.0003", "--canaries", f"{corpus[1]}=2"),
        *map(str, more),
    ]


def run_all(words, n_processes, **more):
    """Run to the end; returns what each process said on standard error."""
    ended = finish_all(start_all(words, n_processes, **more))
    assert [code for code, _, _ in ended] == [0] * n_processes, ended
    return [said for _, _, said in ended]


def losses(out):
    return {row["step"]: row["loss"] for row in read_rows(out / "metrics.jsonl")}


def assert_same_curve(out, other):
    """Steps in order, each once, with the losses of another run."""
    found, expected = losses(out), losses(other)
    assert list(found) == list(expected) == list(range(1, len(expected) + 1))
    # Sums over other parts of a batch: some 1e-7 a step; six digits are written.
    np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=1e-5)


def wait_until(started, condition):
    deadline = time.monotonic() + 240
    while not condition() and time.monotonic() < deadline:
        assert all(one.poll() is None for one in started), finish_all(started)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def whole(long_corpus, tmp_path_factory):
    """The run that nothing stopped, of one process."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run_all(words(long_corpus, "--out", out), 1)
    return out


def test_sigterm_to_one_of_four_saves_all_and_two_go_on(long_corpus, whole, tmp_path):
    out = tmp_path / "run"
    four = start_all(words(long_corpus, "--out", out, "--mesh", "data=2,fsdp=2"), 4)
    wait_until(four, lambda: len(losses(out)) > 3)
    four[2].send_signal(signal.SIGTERM)
    ended = finish_all(four)
    assert [code for code, _, _ in ended] == [0] * 4, ended
    step = saved_steps(out)[-1]
    assert f"stopped at step {step:,} of" in ended[0][2]
    assert not read_manifest(out / "manifest.json").finished

    # An export reads what four processes wrote in parts.
    exported = export(out)
    assert load_checkpoint(str(exported)).n_parameters > 0
    said = run_all(words(long_corpus, "--out", out, "--mesh", "fsdp=2"), 2)
    assert f"going on at step {step:,} of" in said[0]
    assert_same_curve(out, whole)


def test_no_step_waits_for_another_host(corpus, tmp_path):
    counts = {"module": "tests.support.told_processes"}
    ended = finish_all(start_all(words(corpus, "--out", tmp_path / "run"), 2, **counts))
    assert [code for code, _, _ in ended] == [0, 0], ended
    for _, printed, _ in ended:
        assert re.search(r"^collectives of hosts in \d\d+ steps: 0$", printed, re.M)


def test_when_one_of_four_is_killed_the_others_stop_and_the_run_goes_on(
    long_corpus, whole, tmp_path
):
    out = tmp_path / "run"
    command = words(long_corpus, "--out", out, "--checkpoint-steps", 20)
    four = start_all(command, 4)
    wait_until(four, lambda: saved_steps(out))
    four[3].kill()
    # JAX ends them after half a minute without a sign of life.
    ended = finish_all(four, timeout=240)
    assert all(code for code, _, _ in ended), ended
    run_all(command, 2)
    assert_same_curve(out, whole)


def test_hosts_with_disks_of_their_own_train_as_one_and_share_checkpoints_alone(
    corpus, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared, alone = tmp_path / "bucket", tmp_path / "alone"
    disks = [tmp_path / "a", tmp_path / "b"]
    hosts = {"n_devices": 2, "out_of": lambda process: disks[process]}
    command = words(corpus, "--mesh", "data=2,fsdp=2")
    refused = finish_all(start_all(command, 2, **hosts))
    assert [code for code, _, _ in refused] == [2, 2]
    assert "does not see what process 0 writes there" in refused[1][2]
    assert "--checkpoints names a folder that all hosts share" in refused[1][2]

    command += ["--checkpoints", str(shared), "--audit-at", "0.5", "1"]
    ended = finish_all(start_all(command, 2, **hosts))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert f"model: {disks[0] / 'model'}\n" in ended[0][1]
    assert "model:" not in ended[1][1]
    run_all(words(corpus, "--out", alone), 1)
    assert_same_curve(disks[0], alone)
    one, other = (load_checkpoint(str(out / "model")) for out in (shared, alone))
    weights = (found.decoder.embedding[...] for found in (one, other))
    np.testing.assert_allclose(*weights, atol=1e-4)
    # Of process 1 there is nothing but the streams.
    streams = {"stream.npy", "rows.npy", "validation.npy"}
    assert {path.name for path in disks[1].iterdir()} == streams
    # Nothing is lost with the disks, and nothing is trained again.
    for disk in disks:
        shutil.rmtree(disk)
    assert read_manifest(shared / "manifest.json").finished
    said = run_all(command, 2, **hosts)
    assert "reusing the finished model" in said[0]
