"""XLA's TPU compiler takes what we ask of it; it needs libtpu, and no TPU."""

import dataclasses
import importlib.util

import jax
import pytest
from flax import nnx

from eval.speed.compiled import absent_devices, measure_compiled
from eval.speed.subjects import is_operand
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.fused_attention import hardware_of
from jaxcontam.models.sharding import mesh_sharding
from jaxcontam.scoring.mesh import (
    MeshShape,
    compiled_pairs,
    compiled_tokens,
    device_mesh,
)
from tests.support.family_files import RAW, raw_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"
    ),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("model_type", RAW)
def test_rows_and_pairs_of_every_family_compile(model_type, dtype):
    config = FAMILIES[model_type].read_config(raw_config(model_type))
    config = dataclasses.replace(config, context=max(config.context, 128))
    devices, _ = absent_devices("v5e-1")
    mesh = device_mesh(MeshShape(), devices)
    graphdef, state = nnx.split(abstract_decoder(config, hardware_of(devices[0])))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def shape(path, leaf):
        own = dtype if is_operand(path) else leaf.dtype
        return jax.ShapeDtypeStruct(leaf.shape, own, sharding=where)

    def ids(*shape):
        return jax.ShapeDtypeStruct(shape, "int32", sharding=where)

    sharding = mesh_sharding(state, mesh)
    state = jax.tree.map_with_path(shape, state)
    rows = compiled_tokens(graphdef, mesh, sharding, False)
    pairs = compiled_pairs(graphdef, mesh, sharding, 2)
    for lowered in (
        rows.lower(state, ids(4, 128), ids(4, 128)),
        pairs.lower(state, ids(4, 32), ids(4), ids(4, 3, 16)),
    ):
        assert lowered.compile().as_text().startswith("HloModule")


def test_every_program_of_the_table_compiles_and_has_an_estimate():
    found = measure_compiled("v5e-4", tiny=True)
    assert len(found) == 5
    for name, row in found.items():
        assert row["ms"] > row["product ms"] > 0 and row["memory GB"] > 0, name
    assert found["score 7b, fsdp=4"]["collectives GB"] > 0
