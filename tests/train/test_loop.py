"""The training loop: an end at any step, and the same weights after going on."""

import dataclasses
import shutil
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from orbax.checkpoint._src.path import gcs_utils

from jaxcontam.errors import InputError, StorageError
from jaxcontam.models.config import ExpertShape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import WeightSharding, weight_name
from tests.support.stepwise import train_decoder
from train import step
from train.checkpoints import CHECKPOINTS_DIR, Checkpoints, restore_params, saved_steps
from train.config import PRESETS, Compute
from train.data import Rows, row_batches
from train.loop import Watch, _Told, compiled_step, train

pytestmark = pytest.mark.unoptimised

PULSE = PRESETS["pulse"]
N_STEPS = 30


def batches(n_steps=N_STEPS):
    ids = np.random.default_rng(0).integers(0, 512, 20_000, dtype=np.int32)
    starts = np.random.default_rng(1).permutation(len(ids) // 64)[: 4 * n_steps] * 64
    return row_batches(Rows(ids, starts, 64), batch_rows=4, n_steps=n_steps)


def run(
    folder=None, *, stop_at=None, config=PULSE, keep_every=None, steps=None, **more
):
    """One start of a run; returns where it stands and the losses that it reported."""
    losses = {}
    seen = 0

    def should_stop():
        nonlocal seen
        seen += 1
        return seen == stop_at

    def keep(before, found):
        losses.update(enumerate(found["loss"].tolist(), before + 1))

    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(folder, config=config, keep_every=keep_every)
    trained = train(
        config,
        Decoder(config.decoder, rngs=nnx.Rngs(7)),
        batches(),
        n_steps=N_STEPS,
        checkpoints=checkpoints,
        checkpoint_steps=steps,
        watch=Watch(steps=keep),
        should_stop=should_stop,
        **more,
    )
    if checkpoints is not None:
        checkpoints.close()
    return trained, losses


def weights(decoder):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(decoder))]


def assert_equal_weights(one, other):
    jax.tree.map(np.testing.assert_array_equal, weights(one), weights(other))


def test_what_the_loss_reports_reaches_who_watches(monkeypatch):
    """As means over a whole batch."""
    usual = step.batch_loss

    def loss(params, batch_BT, **more):
        found, _ = usual(params, batch_BT, **more)
        first = jax.numpy.mean(batch_BT[:, 0], dtype=jax.numpy.float32)
        return found + 1, {"cross_entropy": found, "first_id": first}

    config = dataclasses.replace(PULSE, compute=Compute(micro_batches=2))
    graphdef, params = nnx.split(Decoder(config.decoder, rngs=nnx.Rngs(7)))
    batch = next(batches())
    plain = float(step.mean_loss(graphdef, params, batch))
    monkeypatch.setattr(step, "batch_loss", loss)
    compiled_step.cache_clear()
    found = []
    train(
        config,
        nnx.merge(graphdef, params),
        batches(3),
        n_steps=3,
        watch=Watch(steps=lambda _, numbers: found.append(numbers)),
    )
    compiled_step.cache_clear()
    (numbers,) = found
    assert float(numbers["first_id"][0]) == pytest.approx(batch[:, 0].mean())
    assert float(numbers["cross_entropy"][0]) == pytest.approx(plain, rel=1e-6)
    np.testing.assert_allclose(numbers["loss"], numbers["cross_entropy"] + 1, rtol=1e-6)


@pytest.fixture(scope="module")
def whole():
    return run()


@pytest.mark.parametrize(
    "stops",
    [
        (29,),
        (7, 1, 1, 13),
        *(pytest.param(stops, marks=pytest.mark.slow) for stops in ((1,), (3, 11))),
    ],
)
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(
    whole, tmp_path, stops
):
    done, losses = 0, {}
    for n in stops:
        trained, found = run(tmp_path, stop_at=n)
        done += n
        losses |= found
        assert (trained.step, trained.finished) == (done, False)
        assert saved_steps(tmp_path)[-1] == done
    trained, found = run(tmp_path)
    assert trained.finished
    assert_equal_weights(trained.decoder, whole[0].decoder)
    assert losses | found == whole[1]
    assert sorted(found) == list(range(done + 1, N_STEPS + 1))


def test_kernels_that_add_to_the_residual_stream_begin_smaller_by_their_number():
    shape = dataclasses.replace(
        PULSE.decoder,
        d_model=64,
        experts=ExpertShape(n=4, n_used=2, normalised=True, d_shared=32),
    )
    for config in (PULSE.decoder, shape):
        decoder = step.fresh_decoder(config, seed=0, mesh=None)
        n_small = 0
        for path, leaf in jax.tree.leaves_with_path(nnx.state(decoder)):
            name = weight_name(path)
            if name.endswith("kernel"):
                is_small = name.endswith((".out.kernel", "down.kernel"))
                n_small += is_small
                expected = 0.02 / (2 * config.n_layers if is_small else 1) ** 0.5
                # Five standard errors of the deviation of so many normal numbers.
                rel = 5 / (2 * leaf.size) ** 0.5
                assert float(np.std(leaf)) == pytest.approx(expected, rel=rel)
        assert n_small == (3 if config is shape else 2)


@pytest.mark.parametrize(
    ("of_save", "of_step", "steps"),
    [
        # Six steps before make a minute; twenty make fifty times the four seconds.
        (4.0, 10.0, [7, 7 + 1 + 20]),
        # Fifty times would be 5,000 seconds; half an hour is the longest.
        (100.0, 200.0, [2, 12, 22]),
    ],
)
def test_saving_takes_a_fiftieth_of_the_time_at_most(
    monkeypatch, of_save, of_step, steps
):
    seconds, saved = 0.0, []

    def advance(n):
        nonlocal seconds
        seconds += n

    def save(step, *_):
        advance(of_save)
        saved.append(step)

    monkeypatch.setattr("train.loop.time", SimpleNamespace(monotonic=lambda: seconds))
    checkpoints: Any = SimpleNamespace(
        newest=lambda: None, is_kept=lambda step: False, save=save, wait=lambda: None
    )
    train(
        PULSE,
        Decoder(PULSE.decoder, rngs=nnx.Rngs(7)),
        batches(),
        n_steps=N_STEPS,
        checkpoints=checkpoints,
        should_stop=lambda: bool(advance(of_step)),
    )
    assert saved == steps


def test_what_processes_say_is_known_two_steps_later_and_a_checkpoint_answers_it(
    monkeypatch,
):
    mesh: Any = SimpleNamespace(is_multi_process=True)
    told, known, saved_at = _Told(mesh), {}, 0
    for n in range(1, 10):
        # Another process is told to stop before step 7.
        told.add({"told": told._said | [n == 7, False]})
        known[n] = told.by_all(False, n - saved_at >= 2)
        if known[n][1]:
            told.saved()
            saved_at = n
    # Due after step 2, which rides in step 3; due again after step 7.
    assert known == {n: (n == 9, n == 5) for n in range(1, 10)}
    # The clock of process 0 alone decides.
    monkeypatch.setattr("train.loop.is_first", lambda: False)
    told.by_all(True, True)
    assert told._said.tolist() == [True, False]


def test_checkpoints_that_were_asked_for_are_kept_with_the_weights_of_their_steps(
    tmp_path, whole
):
    with pytest.raises(InputError, match="no checkpoints"):
        restore_params(tmp_path)
    run(tmp_path, keep_every=6, steps=4)
    kept = saved_steps(tmp_path)
    assert set(kept) >= {6, 12, 18, 24, 30}
    assert len(kept) <= 7
    config, step, decoder = restore_params(tmp_path)
    assert (config, step) == (PULSE, N_STEPS)
    assert_equal_weights(decoder, whole[0].decoder)
    _, step, earlier = restore_params(tmp_path, 12)
    assert step == 12
    assert not np.array_equal(weights(earlier)[0], weights(decoder)[0])
    with pytest.raises(InputError, match="no checkpoint at step 5") as caught:
        restore_params(tmp_path, 5)
    assert caught.value.hint.endswith(", ".join(map(str, kept)))


def test_audits_see_the_decoder_of_their_step(whole):
    seen = {}
    train(
        PULSE,
        Decoder(PULSE.decoder, rngs=nnx.Rngs(7)),
        batches(),
        n_steps=N_STEPS,
        watch=Watch(audit=seen.__setitem__, audit_steps=(10, N_STEPS)),
    )
    assert sorted(seen) == [10, N_STEPS]
    assert_equal_weights(seen[N_STEPS], whole[0].decoder)


@pytest.mark.parametrize(
    "compute",
    [
        Compute(remat=True, micro_batches=2),
        pytest.param(Compute(micro_batches=4), marks=pytest.mark.slow),
    ],
)
def test_remat_and_micro_batches_change_nothing_but_rounding(whole, compute):
    trained, losses = run(config=dataclasses.replace(PULSE, compute=compute))
    # Some 1e-7 a step, grown by Adam's division; 30 steps.
    np.testing.assert_allclose([*losses.values()], [*whole[1].values()], rtol=1e-5)
    both = weights(trained.decoder), weights(whole[0].decoder)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), *both)


def test_training_lowers_the_loss_from_that_of_the_uniform_distribution():
    rows = np.tile(np.arange(65, dtype=np.int32)[None], (200, 1))
    _, losses = train_decoder(PULSE, rows, seed=0)
    assert losses[0] == pytest.approx(np.log(512), rel=0.02)
    # The rows repeat one sequence: 50 steps take most of the surprise out of it.
    assert losses[-1] < losses[0] / 2


# Ten seconds; rounded products have tests of their own.
@pytest.mark.slow
def test_bfloat16_products_train_float32_weights(whole):
    config = dataclasses.replace(PULSE, compute=Compute(dtype="bfloat16"))
    trained, losses = run(config=config)
    assert all(leaf.dtype == np.float32 for leaf in weights(trained.decoder))
    # bfloat16 keeps 8 bits: a loss of 6 nats moves in its third digit.
    assert 0 < max(abs(losses[step] - whole[1][step]) for step in losses) < 0.05


def test_a_run_that_diverges_stops_with_its_step(tmp_path):
    config = PULSE.changed(peak_rate=1e30)
    with pytest.raises(InputError, match=r"diverged: the loss of step \d+ is"):
        run(tmp_path, config=config, steps=100)
    assert saved_steps(tmp_path) == []


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_serves(whole, tmp_path):
    # As if killed at step 17: only the checkpoint at 16 is known of.
    run(tmp_path, stop_at=17, steps=8)
    assert saved_steps(tmp_path) == [16, 17]
    damaged = tmp_path / CHECKPOINTS_DIR / "17"
    shutil.rmtree(damaged / "state")
    with pytest.raises(InputError, match="17: a damaged checkpoint") as caught:
        run(tmp_path)
    assert "delete this folder" in caught.value.hint
    shutil.rmtree(damaged)
    trained, _ = run(tmp_path)
    assert_equal_weights(trained.decoder, whole[0].decoder)


def test_a_checkpoint_half_written_into_a_bucket_does_not_count(
    whole, tmp_path, monkeypatch
):
    # There nothing is renamed: a file that is written last says that all is there.
    monkeypatch.setattr(gcs_utils, "is_gcs_path", lambda path: True)
    run(tmp_path, stop_at=17, steps=8)
    folder = tmp_path / CHECKPOINTS_DIR
    assert saved_steps(tmp_path) == [16, 17]
    (folder / "17" / "commit_success.txt").unlink()
    assert saved_steps(tmp_path) == [16]
    trained, found = run(tmp_path, stop_at=1)
    assert (min(found), trained.step) == (17, 17)
    assert saved_steps(tmp_path) == [16, 17]
    trained, _ = run(tmp_path)
    assert_equal_weights(trained.decoder, whole[0].decoder)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("DATA_LOSS: checksum"), InputError),
        (ValueError("PERMISSION_DENIED: 403"), StorageError),
        (PermissionError("not yours"), StorageError),
        (RuntimeError("RESOURCE_EXHAUSTED: the device is full"), RuntimeError),
    ],
)
def test_only_a_broken_checkpoint_is_called_damaged(tmp_path, error, kind, monkeypatch):
    run(tmp_path, stop_at=1)

    def restore(*args, **more):
        raise error

    monkeypatch.setattr(ocp.CheckpointManager, "restore", restore)
    with pytest.raises(kind) as caught:
        run(tmp_path)
    assert ("damaged" in str(caught.value)) == (kind is InputError)
    assert ("delete" in getattr(caught.value, "hint", "")) == (kind is InputError)


# Ten seconds of training.
@pytest.mark.slow
def test_bfloat16_loses_nothing_of_a_token_that_stands_everywhere():
    # In a bfloat16 sum, terms stop to count once it is some 256 times as large.
    batch = np.full((32, 65), 7, np.int32)
    batch[:, ::3] = np.random.default_rng(0).integers(0, 512, (32, 22))
    untied = dataclasses.replace(PULSE.decoder, tied=False)
    graphdef, params = nnx.split(Decoder(untied, rngs=nnx.Rngs(0)))
    slopes = [
        jax.grad(
            lambda params, compute: step.batch_loss(
                params,
                batch,
                graphdef=graphdef,
                compute=compute,
                layout=WeightSharding(()),
                first_id=None,
            )[0]
        )(params, Compute(dtype=dtype))
        for dtype in ("float32", "bfloat16")
    ]
    exact, found = (np.asarray(one["embedding"][...])[7] for one in slopes)
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_a_profile_of_steps_after_the_first_ends_with_the_run(tmp_path):
    for n, stop_at in (1, None), (100, 4):
        folder = tmp_path / str(n)
        trained, _ = run(profile=(folder, n), stop_at=stop_at)
        assert trained.step == (stop_at or N_STEPS)
        (trace,) = folder.rglob("*.xplane.pb")
        assert trace.stat().st_size
