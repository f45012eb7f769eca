"""One configuration: presets as large as their names say, flags for every field."""

import dataclasses
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from train.config import (
    PARTS,
    PRESETS,
    Config,
    ConfigFlags,
    Optimizer,
    changes,
    config_from_json,
    config_to_json,
    recipe_now,
)
from train.optimizer import learning_rate, make_optimizer

# Published sizes of GPT-2 and TinyLlama; the others follow from their names.
MILLIONS = {
    "0.16m": 0.16,
    "tiny": 0.73,
    "5m": 5.8,
    "30m": 30,
    "124m": 124,
    "350m": 354.8,
    "774m": 774,
    "1.4b": 1_440,
    "llama-1b": 1_100,
}


@pytest.mark.parametrize("name", MILLIONS)
def test_a_preset_has_as_many_parameters_as_it_says(name):
    config = PRESETS[name]
    decoder = nnx.eval_shape(lambda: Decoder(config.decoder, rngs=nnx.Rngs(0)))
    n = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))
    assert n == pytest.approx(1e6 * MILLIONS[name], rel=0.02)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_saved_in_its_family_and_kept_as_json(name):
    config = PRESETS[name]
    family = FAMILIES[config.model_type]
    assert family.read_config(family.write_config(config.decoder)) == config.decoder
    assert config_from_json(config_to_json(config)) == config


def other_values():
    """A value of every flag that the smallest preset does not have."""
    parts = [("", Config), *PARTS.items()]
    found = {}
    for name, part in parts:
        usual = getattr(PRESETS["pulse"], name) if name else PRESETS["pulse"]
        hints = get_type_hints(part)
        for one in dataclasses.fields(part):
            if not one.metadata:
                continue
            value, choices = getattr(usual, one.name), get_args(hints[one.name])
            if isinstance(value, bool):
                found[one.name] = not value
            elif isinstance(value, float):
                found[one.name] = 0.77
            elif isinstance(value, str):
                found[one.name] = choices[-1] if choices else "another"
            else:
                found[one.name] = 3
    return found


def test_every_option_is_a_flag_and_every_flag_an_option():
    others = other_values()
    flags = {one.name for one in dataclasses.fields(ConfigFlags)}
    assert flags == {"preset", *others}
    del others["optimizer"]  # the only one
    found = ConfigFlags(preset="pulse", **others).configured()
    assert changes(found, PRESETS["pulse"]) == others
    assert config_from_json(config_to_json(found)) == found
    assert ConfigFlags().configured() == PRESETS["tiny"]


def test_an_optimiser_that_is_not_there_is_not_another():
    options = dataclasses.replace(PRESETS["pulse"].optimizer, optimizer="lion")
    with pytest.raises(ValueError, match="'lion'"):
        make_optimizer(options, 10)


def test_a_shape_that_is_refused_is_a_recipe_of_another_run():
    stored = config_to_json(PRESETS["pulse"])
    stored["decoder"] = stored["decoder"] | {"n_kv_heads": 3}
    assert recipe_now(stored) == stored


def test_an_option_that_a_stored_recipe_lacks_has_its_default_and_others_are_kept():
    now = config_to_json(PRESETS["pulse"].changed(separator=" "))
    stored = {name: value for name, value in now.items() if name != "isolate_documents"}
    stored |= {"optimizer": {"peak_rate": 5e-3}, "compute": None}
    del stored["data"]
    assert recipe_now(stored, separator=" ") == now
    # An option that this version does not have is no default of any.
    strange = {**stored, "compute": {"speed": 3}}
    assert recipe_now(strange) == strange
    assert recipe_now(None) is None


@pytest.mark.parametrize(
    "flags",
    [
        *(
            {name: 0}
            for name in ("batch_rows", "micro_batches", "peak_rate", "clip_norm")
        ),
        *({name: 1.0} for name in ("beta1", "beta2")),
        *({name: -0.1} for name in ("warmup", "final_rate", "weight_decay")),
        {"warmup": 1.1},
        {"peak_rate": float("nan")},
        {"preset": "tinny"},
    ],
    ids=str,
)
def test_values_that_no_training_has_are_refused(flags):
    (name,) = flags
    with pytest.raises(InputError, match=name.replace("_", "-")):
        ConfigFlags(**flags)
    with pytest.raises(InputError, match="--row-tokens must be at most"):
        ConfigFlags(row_tokens=1 << 20).configured()


def test_the_rate_rises_in_the_warm_up_and_ends_at_its_share_of_the_peak():
    optimizer = Optimizer(peak_rate=0.5, warmup=0.2, final_rate=0.1)
    rates = [
        float(learning_rate(optimizer, 100)(step)) for step in (0, 10, 20, 60, 100)
    ]
    # Halfway down a cosine from 0.5 to 0.05.
    np.testing.assert_allclose(rates, [0, 0.25, 0.5, 0.275, 0.05], rtol=1e-6)
    constant = dataclasses.replace(optimizer, schedule="constant")
    assert [float(learning_rate(constant, 100)(step)) for step in (10, 99)] == [
        0.25,
        0.5,
    ]


def test_the_first_update_is_adams_in_closed_form_and_only_kernels_decay():
    """A first moment over the root of a first second moment is the gradient's sign."""
    params = {"a": {"kernel": jnp.array([2.0, -4.0])}, "scale": jnp.array([3.0])}
    config = Optimizer(peak_rate=0.1, schedule="constant", warmup=0.0, weight_decay=0.5)
    update = make_optimizer(config, 10)
    state = update.init(params)
    gradients = {"a": {"kernel": jnp.array([0.3, -0.4])}, "scale": jnp.array([1e3])}
    # The warm-up is one step at the least, whose rate is 0.
    nothing, state = update.update(gradients, state, params)
    assert not any(map(jnp.any, jax.tree.leaves(nothing)))
    found, _ = update.update(gradients, state, params)
    np.testing.assert_allclose(found["scale"], [-0.1], rtol=1e-4)
    decayed = -0.1 * (np.sign([0.3, -0.4]) + 0.5 * np.array([2.0, -4.0]))
    np.testing.assert_allclose(found["a"]["kernel"], decayed, rtol=1e-2)
