"""The logs of a run: a run that was cut and resumed leaves those of a whole one."""

import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from train.audits import plan_audit
from train.checkpoints import Checkpoints, saved_steps
from train.loop import Watch, train
from train.manifest import Manifest, PlantedSet, write_manifest
from train.presets import Preset
from train.rows import Rows, row_batches
from train.run_log import RunLog, TrainingProgress, step_rates
from train.step_log import read_rows
from train.tokenizer import train_tokenizer

pytestmark = pytest.mark.unoptimised

_PRESET = Preset(
    name="smallest",
    decoder=llama_shape(
        vocab_size=300, d_model=16, n_layers=1, n_heads=2, d_ff=32, context=48
    ),
    batch_rows=4,
    peak_rate=5e-3,
)
_N_STEPS = 24
_LOSSES = np.linspace(6, 3, _N_STEPS, dtype=np.float32)


@pytest.fixture(scope="module")
def planned():
    """A manifest of one set and one control, and the plan of their audits."""
    rng = np.random.default_rng(0)
    sets = [
        Benchmark(
            name,
            tuple(f"{a} plus {b}" for a, b in rng.integers(0, 99, size=(12, 2))),
            (None,) * 12,
        )
        for name in ("planted", "control")
    ]
    manifest = Manifest(
        jaxcontam="",
        code=None,
        seed=0,
        preset="pulse",
        corpus_digest="",
        separator="\n",
        max_example_tokens=None,
        context=_PRESET.context,
        n_tokens=_N_STEPS * _PRESET.step_tokens,
        n_canary_tokens=0,
        n_steps=_N_STEPS,
        finished=False,
        stream="",
        sets=tuple(
            PlantedSet(
                name=one.name,
                copies=len(steps),
                shuffled=False,
                n_examples=12,
                fingerprint="",
                content_digest="",
                token_offsets=(),
                orders=(),
                steps=steps,
                n_tokens=1,
                file="",
            )
            for one, steps in zip(sets, (((3,), (9,)), ()), strict=True)
        ),
    )
    tokenizer = train_tokenizer([" ".join(sets[0].texts)], 300).backend_tokenizer
    plan = plan_audit(
        sets, manifest, tokenizer, prefix_id=0, context=_PRESET.context, seed=0
    )
    return manifest, plan


class Killed(BaseException):
    """Stands for a signal that no process outlives."""


def _train(out, planned, *, killed_at=None, audit_steps=(0, 12, 24)):
    """One start of a run that saves a checkpoint every 5 steps; returns its weights."""
    manifest, plan = planned
    write_manifest(manifest, out / "manifest.json")
    ids = np.random.default_rng(0).integers(0, 300, 8000, dtype=np.int32)
    starts = np.arange(4 * _N_STEPS) * 48
    checkpoints = Checkpoints(out, preset=_PRESET)
    decoder = Decoder(_PRESET.decoder, rngs=nnx.Rngs(7))
    n_asked = (saved_steps(out) or [0])[-1]

    def kill():
        nonlocal n_asked
        n_asked += 1
        if n_asked == killed_at:
            checkpoints.close()
            raise Killed
        return False

    with RunLog(
        out,
        _PRESET,
        n_steps=_N_STEPS,
        last_step=(saved_steps(out) or [0])[-1],
        plan=plan,
    ) as log:
        watch = Watch(losses=log.losses, audit=log.audit, audit_steps=audit_steps)
        if 0 in watch.audit_steps and not saved_steps(out):
            watch.audit(0, decoder)
        trained = train(
            _PRESET,
            decoder,
            row_batches(Rows(ids, starts, 48), batch_rows=4, n_steps=_N_STEPS),
            n_steps=_N_STEPS,
            checkpoints=checkpoints,
            checkpoint_steps=5,
            watch=watch,
            should_stop=kill,
        )
    checkpoints.close()
    return trained.decoder


def _decoder(step):
    """Stands for the weights after a step."""
    return Decoder(_PRESET.decoder, rngs=nnx.Rngs(step))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, planned):
    """Folder and weights of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, _train(folder, planned)


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [[23], [4, 14, 19]])
def test_logs_of_a_killed_run_are_those_of_a_whole_one(
    tmp_path, planned, whole, killed_at
):
    folder, _ = whole
    for step in killed_at:
        with pytest.raises(Killed):
            _train(tmp_path, planned, killed_at=step)
    _train(tmp_path, planned)
    assert _rows(tmp_path / "metrics.jsonl") == _rows(folder / "metrics.jsonl")
    audits = read_rows(tmp_path / "audits.jsonl")
    assert audits == read_rows(folder / "audits.jsonl")
    assert [row["step"] for row in audits] == [0, 0, 0] + [12] * 3 + [24] * 3
    seen = [row["copies_seen"] for row in audits if row["method"] == "adjacency"]
    assert seen == [0, 0, 2, 0, 2, 0]


# A second whole run.
@pytest.mark.slow
def test_audits_do_not_change_what_is_trained(tmp_path, planned, whole):
    _, audited = whole
    plain = _train(tmp_path, planned, audit_steps=())
    jax.tree.map(np.testing.assert_array_equal, nnx.state(plain), nnx.state(audited))


def _rows(path):
    """Rows without the time that they took, which blocks share."""
    rows = read_rows(path)
    assert [row["step"] for row in rows] == list(range(1, _N_STEPS + 1))
    seconds = [row.pop("seconds") for row in rows]
    assert seconds == sorted(seconds)
    return rows


def test_rows_carry_the_rates_of_the_schedule_and_targets_so_far(planned, tmp_path):
    _train(tmp_path, planned, audit_steps=())
    rows = read_rows(tmp_path / "metrics.jsonl")
    rates = step_rates(_PRESET, _N_STEPS)
    # One step of warm-up from zero, then the peak.
    assert rates[:2].tolist() == [0, pytest.approx(_PRESET.peak_rate, rel=1e-6)]
    # Six digits are written.
    assert [row["rate"] for row in rows] == pytest.approx(rates.tolist(), rel=1e-5)
    assert rows[-1]["tokens"] == _N_STEPS * 4 * 48


def test_without_a_plan_nothing_is_audited(tmp_path):
    with RunLog(tmp_path, _PRESET, n_steps=4) as log:
        log.audit(0, _decoder(0))
    assert read_rows(tmp_path / "audits.jsonl") == []
    assert not (tmp_path / "training.html").exists()


@pytest.mark.parametrize(("last_step", "kept"), [(0, []), (15, [0, 0, 10])])
def test_audits_after_the_step_that_a_run_resumes_from_are_forgotten(
    tmp_path, planned, last_step, kept
):
    manifest, plan = planned
    write_manifest(manifest, tmp_path / "manifest.json")
    path = tmp_path / "audits.jsonl"
    lines = [json.dumps({"step": step}) for step in (0, 0, 10, 20)]
    path.write_text("\n".join([*lines, '{"step": 30, "tok']))
    with RunLog(tmp_path, _PRESET, n_steps=24, last_step=last_step, plan=plan) as log:
        assert [row["step"] for row in read_rows(path)] == kept
        if not kept:
            log.audit(20, _decoder(2))
    if not kept:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(row["step"], row["set"]) for row in found] == [
            *((20, "planted"), (20, "control"), (20, "planted"))
        ]
        assert found[0]["auc"] is None
        assert found[0]["reference"] == []


def test_audits_are_not_counted_as_training(tmp_path, planned, capsys):
    manifest, plan = planned
    write_manifest(manifest, tmp_path / "manifest.json")
    ticks = iter(range(100))
    with RunLog(tmp_path, _PRESET, n_steps=4, plan=plan) as log:
        log.progress = TrainingProgress(
            n_steps=4, tokens_a_step=192, clock=lambda: 10.0 * next(ticks)
        )
        log.losses(0, _LOSSES[:2])
        log.audit(2, _decoder(2))
        log.losses(2, _LOSSES[2:4])
        state = log.progress.update(4, [])
    # Calls of the clock: 0 to begin, 1, 2 and 3 around the audit, 4, 5.
    assert state.tokens_per_second == pytest.approx(2 * 192 / (40 - 10), rel=1e-12)
    assert capsys.readouterr().err.startswith("audit at step 2: adjacency p <= 0.001")


def test_progress_of_a_preset_knows_its_operations(tmp_path):
    with RunLog(tmp_path, _PRESET, n_steps=10, peak_tflops=1e-6) as log:
        state = log.progress.update(1, [3.0])
        assert state.mfu is None
        assert log.progress.update(2, [3.0]).mfu > 0
