"""What compiled programs do: counts read in their text, and what the compilers make."""

import functools

import pytest

from eval.accelerator.compiled import compiled_case
from eval.accelerator.subjects import in_fresh_process, subject
from train.hardware import absent_devices, has_compiler, machine, use_virtual_devices
from train.program import read_program

# A loop over four layers: each takes its slice of the weights, multiplies, and writes
# its row of the result in place. TOLD is how a GPU's compiler tells the turns.
TEXT = """HloModule jit_f, is_scheduled=true

%layer (p0: bf16[4,8,8], p1: bf16[2,8], p2: s32[]) -> f32[2,8] {
  %p0 = bf16[4,8,8]{2,1,0} parameter(0)
  %p1 = bf16[2,8]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %cut = bf16[1,8,8]{2,1,0} dynamic-slice(%p0, %p2, %p2, %p2), dynamic_slice_sizes={1}
  %flat = bf16[8,8]{1,0} bitcast(%cut)
  ROOT %dot.1 = f32[2,8]{1,0} dot(%p1, %flat), lhs_contracting_dims={1}
}

%keep (p3: f32[4,2,8], p4: f32[2,8], p5: s32[]) -> f32[4,2,8] {
  %p3 = f32[4,2,8]{2,1,0} parameter(0)
  %p4 = f32[2,8]{1,0} parameter(1)
  %p5 = s32[] parameter(2)
  %row = f32[1,2,8]{2,1,0} bitcast(%p4)
  ROOT %put = f32[4,2,8]{2,1,0} dynamic-update-slice(%p3, %row, %p5, %p5, %p5)
}

%body (a: (s32[], bf16[4,8,8], bf16[2,8], f32[4,2,8])) -> (s32[], bf16[4,8,8]) {
  %a = (s32[], bf16[4,8,8]{2,1,0}, /*index=2*/bf16[2,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%a), index=0
  %w = bf16[4,8,8]{2,1,0} get-tuple-element(%a), index=1
  %x = bf16[2,8]{1,0} get-tuple-element(%a), index=2
  %y = f32[4,2,8]{2,1,0} get-tuple-element(%a), index=3
  %fusion.1 = f32[2,8]{1,0} fusion(%w, %x, %i), kind=kCustom, calls=%layer
  ROOT %fusion.2 = f32[4,2,8]{2,1,0} fusion(%y, %fusion.1, %i), calls=%keep
}

%condition (b: (s32[], bf16[4,8,8])) -> pred[] {
  %b = (s32[], bf16[4,8,8]{2,1,0}) parameter(0)
  %j = s32[] get-tuple-element(%b), index=0
  %n = s32[]{:T(128)} constant(4)
  ROOT %lt = pred[] compare(%j, %n), direction=LT
}

ENTRY %main (c: bf16[4,8,8]) -> f32[4,2,8] {
  %c = bf16[4,8,8]{2,1,0} parameter(0)
  %t = (s32[], bf16[4,8,8]{2,1,0}) tuple(%c)
  %while.1 = (s32[], f32[4,2,8]{2,1,0}) while(%t), condition=%condition, body=%body TOLD
  %z = f32[4,2,8]{2,1,0} get-tuple-element(%while.1), index=1
  %g = (f32[4,2,8]{2,1,0}, s8[16]{0}) custom-call(%z, %z), custom_call_target=\
"__cublas$lt$matmul", backend_config={"precision_config":{"operand_precision":\
["HIGHEST","HIGHEST"],"algorithm":"ALG_UNSET"}}
  ROOT %out = f32[4,2,8]{2,1,0} get-tuple-element(%g), index=0
}
"""


@pytest.mark.parametrize(
    "told", ["", ', backend_config={"known_trip_count":{"n":"4"}}'], ids=["tpu", "gpu"]
)
def test_a_layer_counts_as_often_as_its_loop_turns_and_reads_its_slice(told):
    found = read_program(TEXT.replace(" TOLD", told))
    assert found.loops == ((4, 2),)
    assert found.launches == 4 * 2 + 1
    # A layer reads 8 x 8 and 2 x 8 numbers of two bytes and a place of four, and writes
    # 2 x 8 of four; these are read, and written to their row, beside the place.
    layer = 2 * 64 + 2 * 16 + 4 + 4 * 16
    kept = 4 * 16 + 4 + 4 * 16
    assert found.moved_bytes == 4 * (layer + kept) + 3 * 4 * 64 + 16
    assert found.products == {
        "bf16 x bf16 -> f32": 1,
        "f32 x f32 -> f32, highest": 1,
    }


def compiled_text(case, on):
    use_virtual_devices(1, are_compiled_for=False)
    return compiled_case(case, absent_devices(machine(on))[0]).as_text()


@functools.cache
def text_of(case, on):
    # JAX looks for devices once in a process, and a plugin without one is then gone.
    return in_fresh_process(compiled_text, case, on)


def needs(on, extra):
    """Skip where the compiler of a device is not installed."""
    found = has_compiler(machine(on))
    return pytest.mark.skipif(not found, reason=f"pip install '.[{extra}]'")


H200 = [needs("h200-1", "cuda"), pytest.mark.slow]
V5E = [needs("v5e-1", "tpu"), pytest.mark.slow]


@pytest.mark.parametrize(
    "on", [pytest.param("h200-1", marks=H200), pytest.param("v5e-1", marks=V5E)]
)
@pytest.mark.parametrize("case", ["score_124m", "train_124m"])
def test_compilers_make_products_of_bfloat16_alone_and_no_pairs_of_tokens(case, on):
    text, config = text_of(case, on), subject(case.split("_")[1], tiny=False).config
    products = read_program(text).products
    assert products
    assert all(words.startswith("bf16 x bf16 ->") for words in products)
    assert f"{config.context},{config.context}]" not in text


@pytest.mark.parametrize(
    ("case", "most"),
    [
        pytest.param("score_124m", (22,), marks=H200),
        pytest.param("train_124m", (44, 61), marks=H200),
    ],
)
def test_a_layer_is_at_most_this_many_launches(case, most):
    n_layers = subject(case.split("_")[1], tiny=False).config.n_layers
    loops = read_program(text_of(case, "h200-1")).loops
    found = [n for turns, n in loops if turns == n_layers]
    assert len(found) == len(most)
    assert all(n <= limit for n, limit in zip(found, most, strict=True))
