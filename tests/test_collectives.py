"""Collectives of a step: counted in its program, and in what a compiler made of it."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from train.dry_run.collectives import (
    Collective,
    compiled_collectives,
    traced_collectives,
)

_SIZES = {"data": 2, "model": 4}

# A loop of three: gathers 8 x 6 numbers, scatters sums of as many, and calls a
# computation that sums one number over single devices, which sends nothing.
_MODULE = """\
HloModule step

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%once (p: f32[2,6]) -> f32[2,6] {
  %p = f32[2,6]{1,0} parameter(0)
  ROOT %r = f32[2,6]{1,0} all-reduce(%p), replica_groups={{0},{1}}, to_apply=%add
}

%body (s: (s32[], f32[2,6])) -> (s32[], f32[2,6]) {
  %x = f32[2,6]{1,0} get-tuple-element(%s), index=1
  %g = f32[8,6]{1,0} all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}
  %p = f32[2,6]{1,0} reduce-scatter(%g), replica_groups=[1,4]<=[4], to_apply=%add
  %c = f32[2,6]{1,0} call(%p), to_apply=%once
  ROOT %t = (s32[], f32[2,6]{1,0}) tuple(%i, %c)
}

%condition (s: (s32[], f32[2,6])) -> pred[] {
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(3)
  ROOT %more = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[2,6]) -> f32[2,6] {
  %w = (s32[], f32[2,6]{1,0}) while(%t), condition=%condition, body=%bodyTRIPS
  %s = (bf16[2,6], bf16[8,6]) all-gather-start(%y), replica_groups={{0,1,2,3}}
  %d = bf16[8,6] all-gather-done(%s)
  %r = (f32[5], f32[]) all-reduce(%u, %v), replica_groups={{0,1,2,3}}, to_apply=%add
}
"""


@pytest.mark.parametrize(
    "told", ["", ', backend_config={"known_trip_count":{"n":"3"}}'], ids=["by", "told"]
)
def test_collectives_in_a_loop_count_once_a_round(told):
    found = compiled_collectives(_MODULE.replace("TRIPS", told))
    by_kind = {one.kind: (one.count, one.bytes) for one in found}
    assert by_kind == {
        "all-gather": (3 + 1, 3 * 8 * 6 * 4 + 8 * 6 * 2),
        "reduce-scatter": (3, 3 * 8 * 6 * 4),
        "all-reduce": (1, 6 * 4),
    }


def test_a_loop_that_sends_and_does_not_tell_its_rounds_is_an_error():
    text = _MODULE.replace("TRIPS", "").replace("constant(3)", "parameter(1)")
    with pytest.raises(ValueError, match="how often"):
        compiled_collectives(text)


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
