"""Collectives of a traced program, counted with its loops."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from train.dry_run.collectives import Collective, traced_collectives

_SIZES = {"data": 2, "model": 4}


def test_a_program_asks_for_what_its_scans_repeat():
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    rows, parts = PartitionSpec(("data", "model")), PartitionSpec("model")

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(parts, rows),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    def program(part_D, x_B):
        def step(total, _):
            whole_D = jax.lax.all_gather(part_D, "model", axis=0, tiled=True)
            return total + whole_D.astype(jnp.float32).sum() * x_B.sum(), None

        total, _ = jax.lax.scan(step, jnp.float32(0.0), None, length=5)
        return jax.lax.psum(total, ("data", "model"))

    shapes = [
        jax.ShapeDtypeStruct((12,), "bfloat16"),
        jax.ShapeDtypeStruct((8,), "float32"),
    ]
    jaxpr = jax.make_jaxpr(program)(*shapes).jaxpr
    assert traced_collectives(jaxpr, _SIZES) == (
        Collective(
            kind="all-gather", axes=("model",), group=4, count=5, bytes=5 * 12 * 2
        ),
        Collective(
            kind="all-reduce", axes=("data", "model"), group=8, count=1, bytes=4
        ),
    )
    # Along an axis of one device there is nothing to send.
    assert traced_collectives(jaxpr, {"data": 1, "model": 1}) == ()
