"""Training on a mesh of data and model: the numbers of one device, in parts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from jaxcontam.models.sharding import weight_name, weight_sharding
from train.config import PRESETS
from train.optimizer import kernels, make_optimizer
from train.step import abstract_params, state_shardings

ROOT = Path(__file__).resolve().parents[2]


def found_by(folder, *what):
    words = [sys.executable, "-m", "tests.support.fsdp_run", str(folder), *what]
    # Optimised code would take longer to make than it saves.
    flags = "--xla_backend_optimization_level=0"
    flags += " --xla_force_host_platform_device_count=8"
    own = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    subprocess.run(words, cwd=ROOT, env=os.environ | own, check=True)
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Runs on one device and on 2 x 4, and random ones."""
    return found_by(tmp_path_factory.mktemp("fsdp"), "1x1", "2x4")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """The other meshes, ways to compute, and what the compiler says."""
    return found_by(tmp_path_factory.mktemp("more"), "1x1", "8x1", "1x8")


def gap(found, name, other):
    """Largest relative difference of the losses of two runs."""
    one, two = (np.array(list(found["losses"][key].values())) for key in (name, other))
    return np.abs(one / two - 1).max()


def test_the_optimizers_averages_lie_as_their_weights_and_counters_everywhere():
    shapes = abstract_params(PRESETS["pulse"].decoder)
    mesh: Any = AbstractMesh((2, 4), ("data", "fsdp"), (AxisType.Auto,) * 2)
    lie = state_shardings(make_optimizer(PRESETS["pulse"].optimizer, 10), shapes, mesh)
    sharding = weight_sharding(shapes, 4)
    names = {weight_name(path) for path, _ in jax.tree.leaves_with_path(shapes)}
    n_averages = 0
    for path, found in jax.tree.leaves_with_path(lie):
        _, _, name = weight_name(path).partition("u.")
        n_averages += name in names
        expected = sharding.spec(name) if name in names else PartitionSpec()
        assert found.spec == expected, path
    assert n_averages == 2 * len(names)
    assert len(sharding.axes) == 5, "four kernels a layer and the embedding"


def test_state_of_an_optimizer_of_several_parts_lies_as_its_weights():
    """Parts keep moments of some weights alone, and nothing in place of the others."""
    shapes = abstract_params(PRESETS["pulse"].decoder)
    mesh: Any = AbstractMesh((2, 4), ("data", "fsdp"), (AxisType.Auto,) * 2)
    parts = {True: optax.sgd(0.1, momentum=0.9), False: optax.adam(0.1)}
    optimizer = optax.chain(optax.clip(1.0), optax.partition(parts, kernels))
    lie = state_shardings(optimizer, shapes, mesh)
    state = jax.eval_shape(optimizer.init, shapes)
    assert jax.tree.structure(lie) == jax.tree.structure(state)
    sharding = weight_sharding(shapes, 4)
    specs = [one.spec for one in jax.tree.leaves(lie)]
    weights = jax.tree.map_with_path(lambda path, _: weight_name(path), shapes)
    names, is_kernel = jax.tree.leaves(weights), jax.tree.leaves(kernels(shapes))
    # A kernel has a momentum, another weight two moments; a step count is whole.
    expected = [
        sharding.spec(name)
        for name, once in zip(names, is_kernel, strict=True)
        for _ in range(1 if once else 2)
    ]
    assert sorted(map(str, specs)) == sorted(map(str, [*expected, PartitionSpec()]))


# Six compilations for 8 devices; test_processes divides weights by default.
@pytest.mark.slow
def test_weights_divided_on_2x4_devices_train_as_on_one(found):
    assert len(found["losses"]["2x4"]) == len(found["losses"]["1x1"]) == 12
    # Sums over other parts of a batch round otherwise: 3e-7 in 12 steps.
    assert gap(found, "2x4", "1x1") < 1e-5
    assert found["gaps"]["2x4"] < 1e-5
    # A device keeps its part of the weights and of the optimizer's state; norms alone
    # are whole, 0.4 % of the weights.
    assert found["shares"]["1x1"] == 1
    assert 0.25 <= found["shares"]["2x4"] < 0.26
    assert 0.25 <= found["state_share"] < 0.26
    # Born divided or whole, made whole and divided again: the same weights.
    assert found["fresh"] == found["whole"] == 0
    assert found["placed"] == found["shares"]["2x4"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_any_mesh_micro_batch_remat_and_restart_train_as_one_device(found, number):
    drawn = found["drawn"][number]
    losses = [drawn["losses"][str(step)] for step in range(1, 13)]
    whole = list(found["losses"]["1x1"].values())
    assert 0 < drawn["n_first"] < 12, drawn["about"]
    np.testing.assert_allclose(losses, whole, rtol=1e-5, err_msg=drawn["about"])


# Ten compilations for 8 devices.
@pytest.mark.slow
def test_every_mesh_and_way_to_compute_trains_as_one_device(more):
    for mesh in ("8x1", "1x8"):
        assert gap(more, mesh, "1x1") < 1e-5
        assert more["gaps"][mesh] < 1e-5
    # bfloat16 rounds a step's losses by 1e-6 to 3e-6 here, whatever the devices: its
    # gradients are summed over devices in float32.
    for compute in ("micro", "remat", "bfloat16"):
        assert gap(more, f"{compute} 2x4", f"{compute} 1x1") < 1e-5


@pytest.mark.slow
def test_no_layers_whole_weights_outlive_the_layer(more):
    for remat in (False, True):
        one, eight = (more["compiled"][f"{mesh} {remat}"] for mesh in ("1x1", "1x8"))
        # Weights, two averages and the batch.
        assert eight["argument"] < one["argument"] / 7
        # Activations are of an eighth of the rows; with remat the whole model alone
        # would be more than what is left.
        assert eight["temp"] < one["temp"] / 5
    assert (
        more["compiled"]["1x8 True"]["temp"] < more["compiled"]["1x8 True"]["weights"]
    )


@pytest.mark.slow
def test_a_step_gathers_each_weight_twice_and_sums_each_gradient_once(more):
    counts = more["compiled"]["1x8 True"]["collectives"]
    # Four kernels a layer, once for the loss and once for its gradients, and the
    # embedding, which is the head as well; all-reduce: norms' gradients with the loss,
    # and the length of the gradient.
    assert counts["all-gather"] == 2 * 4 + 1
    assert counts["reduce-scatter"] == 4 + 1
    assert counts["all-to-all"] == 0
    assert counts["all-reduce"] <= 3
