"""`python -m train.population`: folders, restarts, processes that fail, messages."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.scoring.local import checkpoint_scorer
from train.manifest import read_manifest
from train.population import Population
from train.population_workers import over_processes

pytestmark = pytest.mark.unoptimised


def opener(job):
    """What runs in the processes of the tests below."""

    def run(task):
        if task == job["fails"]:
            raise ValueError("no good")
        if task == job["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
        return task, os.getpid(), len(cores)

    return run


def broken_opener(job):
    raise RuntimeError(f"cannot open {job}")


def test_task_that_fails_or_dies_costs_no_other_task():
    job = {"fails": 2, "dies": 4}
    found = dict(over_processes(opener, job, range(7), n_processes=2))
    assert found.keys() == set(range(7))
    assert found[2].reason == "ValueError: no good"
    assert "Traceback" in found[2].details
    assert found[4].reason == f"its process ended with code {-signal.SIGKILL}"
    for task in (0, 1, 3, 5, 6):
        number, pid, n_cores = found[task]
        assert (number, n_cores) == (task, 1)
        assert pid != os.getpid()


class Deadly:
    """Ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (3,)


def test_processes_that_die_over_a_large_job_are_not_waited_for():
    job = [Deadly(), bytes(2**20)]
    found = dict(over_processes(opener, job, range(30), n_processes=2))
    assert {one.reason for one in found.values()} == {"its process ended with code 3"}
    assert len(found) == 3


def test_processes_that_cannot_start_do_not_try_every_task():
    found = dict(over_processes(broken_opener, "it", range(30), n_processes=1))
    assert found.keys() == {0, 1, 2}
    assert found[2].reason == "RuntimeError: cannot open it"


def test_processes_end_when_the_caller_stops():
    job = {"fails": None, "dies": None}
    results = over_processes(opener, job, range(50), n_processes=1)
    _, (_, pid, _) = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A corpus of 80 documents and a pool of 70 questions, one of them twice."""
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(90)]
    documents = [" ".join(rng.choice(words, size=90)) for _ in range(80)]
    corpus = folder / "docs.jsonl"
    corpus.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    lines = [f"Q: {' '.join(rng.choice(words, size=4))}? A: {i}" for i in range(70)]
    pool = folder / "pool.txt"
    pool.write_text("".join(line + "\n" for line in [*lines, lines[0]]))
    return corpus, pool


def population(files, out, **changes):
    corpus, pool = files
    fields = {
        "corpus": (corpus,),
        "sets": (pool,),
        "copies": (0, 8),
        "models": 3,
        "seed": 5,
        "steps": 40,
        "processes": 1,
        "out": out,
        "tiny": True,
    }
    return Population(**{**fields, **changes})


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("population")
    assert population(files, out).run() == 0
    return out


def test_each_model_has_a_folder_that_audits_read(finished):
    for seed in (5, 6, 7):
        folder = finished / f"model-{seed}"
        manifest = read_manifest(folder / "manifest.json")
        assert (manifest.seed, manifest.finished) == (seed, True)
        assert [row.copies for row in manifest.sets] == [0, 8]
        stream = np.load(folder / manifest.stream)
        checkpoint = load_checkpoint(str(folder / "model"))
        for row in manifest.sets:
            benchmark = load_benchmark(folder / row.file)
            assert benchmark.fingerprint == row.fingerprint
            ids = np.concatenate(
                encode_examples(
                    checkpoint.tokenizer,
                    benchmark.texts,
                    max_example_tokens=manifest.max_example_tokens,
                ).ids
            )
            for offset in row.token_offsets:
                np.testing.assert_array_equal(
                    stream[offset : offset + row.n_tokens], ids
                )
    assert not list(finished.glob("*.partial"))


def test_pvalues_are_those_of_an_audit_of_the_saved_model(finished):
    folder = finished / "model-6"
    kept = json.loads((folder / "tests.json").read_text())["rows"]
    checkpoint = load_checkpoint(str(folder / "model"))
    manifest = read_manifest(folder / "manifest.json")
    for row, expected in zip(manifest.sets, kept, strict=True):
        benchmark = dataclasses.replace(
            load_benchmark(folder / row.file), order_provenance="seeded"
        )
        planned = plan_test(
            benchmark,
            encode_examples(
                checkpoint.tokenizer,
                benchmark.texts,
                max_example_tokens=manifest.max_example_tokens,
            ),
            order_method("adjacency"),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=manifest.seed,
        )
        scored = score_test(planned, checkpoint_scorer(checkpoint, store=None))
        numbers = planned.result(scored, primary=True, pretests=()).numbers
        assert expected["name"] == benchmark.name
        # Another process, with more threads: sums in another order move log p by some
        # hundredths.
        assert expected["log10_p"] == pytest.approx(numbers.log10_p, abs=0.05)
        assert expected["effect"] == pytest.approx(numbers.effect, abs=1e-3)


def test_table_counts_every_set(finished):
    document = json.loads((finished / "population.json").read_text())
    assert document["n_made"] == 3
    assert [model["seed"] for model in document["models"]] == [5, 6, 7]
    assert {(r["copies"], r["level"]) for r in document["power"]} == {
        (0, 0.001),
        (0, 0.05),
        (8, 0.001),
        (8, 0.05),
    }
    assert all(row["n_sets"] == 3 for row in document["power"])


def weights(out, seed):
    return (out / f"model-{seed}" / "model" / "model.safetensors").read_bytes()


def test_second_run_makes_only_what_is_missing_and_the_same_bits(
    files, finished, capsys
):
    before = weights(finished, 6)
    kept = (finished / "model-5" / "tests.json").stat().st_mtime_ns
    (finished / "model-6" / "tests.json").unlink()
    assert population(files, finished).run() == 0
    assert "keeping 2 finished models" in capsys.readouterr().err
    assert json.loads((finished / "population.json").read_text())["n_made"] == 1
    assert weights(finished, 6) == before
    assert (finished / "model-5" / "tests.json").stat().st_mtime_ns == kept


@pytest.mark.slow
def test_models_made_side_by_side_are_those_made_one_by_one(files, finished, tmp_path):
    one = population(files, tmp_path, form="vmap", together=2)
    assert one.run() == 0
    for seed in (5, 6, 7):
        rows, expected = (
            json.loads((out / f"model-{seed}" / "tests.json").read_text())["rows"]
            for out in (tmp_path, finished)
        )
        for row, other in zip(rows, expected, strict=True):
            assert row["name"] == other["name"]
            # Rounding of 40 steps, then of scores.
            assert row["effect"] == pytest.approx(other["effect"], abs=2e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": 0}, "--models must be at least 1"),
        ({"preset": "0.16"}, "unknown preset '0.16'"),
        ({"background_tokens": 5}, "--steps and --background-tokens exclude"),
        ({"copies": (0, -1)}, "--copies must be numbers of at least 0"),
        ({"copies": (0, 1, 2)}, "pool has 70 examples, 72 needed"),
        ({"copies": (0,), "steps": None}, "nothing is planted"),
        ({"copies": (0, 99)}, "sets' copies are"),
        ({"corpus": ()}, "no corpus is given"),
    ],
)
def test_bad_input_is_refused_before_any_process_starts(
    files, tmp_path, changes, message
):
    with pytest.raises(InputError, match=message):
        population(files, tmp_path / "out", **changes).run()
    assert not list(tmp_path.glob("out/model-*"))
