"""The kernel on meshes of devices: the numbers of one, from parts of the weights.

Much of it is found by the processes of tests/support/mesh_process.py.
"""

import functools
import socket

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.sharding import mesh_sharding
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.mesh import MeshShape, device_mesh, parse_mesh
from tests.support.family_files import RAW
from tests.support.mesh_process import KINDS, decoder, started

WHOLE, DIVIDED = "data=8", "data=2,fsdp=4"


def read(path):
    with path.open("rb") as file, np.load(file) as archive:
        return dict(archive)


def found_by(*arguments, n_devices):
    """What processes wrote, each to the file that its task names first."""
    running = [started(*own, n_devices=n_devices) for own in arguments]
    try:
        said = [process.communicate(timeout=300)[1] for process in running]
    finally:
        # One that waits for another which failed would outlive the tests.
        for process in running:
            process.kill()
    assert not any(process.returncode for process in running), "\n".join(said)
    return [read(own[1]) for own in arguments]


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    out = tmp_path_factory.mktemp("mesh") / "found.npz"
    (found,) = found_by(("eight", out), n_devices=8)
    return found


@pytest.fixture(scope="module")
def one():
    """Scores on one device, made when first asked for."""
    return functools.cache(lambda kind: KINDS[kind](decoder()))


def assert_same_scores(found, one, word, kind):
    # Rows of another batch shape, so another order of float32 sums; tokens are of
    # about -7 nats, norms of about 10.
    np.testing.assert_allclose(found[f"{word} {kind}"], one(kind), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("word", "kind"), [(WHOLE, "tokens"), (DIVIDED, "tokens"), (DIVIDED, "pairs")]
)
def test_a_mesh_gives_the_numbers_of_one_device(eight, one, word, kind):
    assert_same_scores(eight, one, word, kind)


@pytest.mark.slow
def test_every_family_has_the_same_scores_from_divided_weights(tmp_path):
    (found,) = found_by(("family_scores", tmp_path / "found.npz"), n_devices=4)
    for model_type in RAW:
        # The same rows a device, and weights gathered to what they were.
        pair = found[f"{model_type} mesh"], found[f"{model_type} one"]
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5, err_msg=model_type)


def test_every_familys_parts_are_those_of_the_file_and_read_once(tmp_path):
    found_by(("families", tmp_path / "found.npz", tmp_path), n_devices=4)


def test_rows_of_a_device_have_the_bits_of_the_same_rows_alone(eight):
    np.testing.assert_array_equal(eight["together"], eight["alone"])
    assert local_scorer(decoder()).n_devices == len(jax.devices())


def test_weights_are_put_on_the_devices_of_their_mesh(eight):
    assert set(eight["devices of weights"]) == {8}


def test_each_divided_weight_is_gathered_once_and_nothing_else_is_sent(eight):
    assert list(eight[f"{WHOLE} collectives"]) == []
    # In the body of the loop over layers those of qkv, out, up and down; before it the
    # embedding, which is the head too.
    assert list(eight["fsdp=8 collectives"]) == ["all-gather"] * (4 + 1)


@pytest.mark.parametrize(("word", "n_model"), [(WHOLE, 1), ("fsdp=8", 8)])
def test_a_device_keeps_its_share_and_needs_less_than_the_model(eight, word, n_model):
    whole = eight["bytes"]
    # Norms are on every device, and so are a few rows of ids.
    assert eight[f"{word} kept"] < 1.03 * whole / n_model
    # One layer of 24, the embedding and activations.
    assert eight[f"{word} needed"] < 0.2 * whole


def test_mesh_is_spelled_in_any_order_and_in_part():
    assert parse_mesh(None) == MeshShape(None, 1)
    assert parse_mesh("fsdp=2") == MeshShape(None, 2)
    assert parse_mesh("data=4") == MeshShape(4, 1)
    assert parse_mesh("data=4,fsdp=2") == parse_mesh("fsdp=2, data=4")
    assert parse_mesh("fsdp=2, data=4") == MeshShape(4, 2)


@pytest.mark.parametrize(
    ("word", "needs"),
    [
        ("data=4,fsdp=2", "data=4,fsdp=2 needs 8 devices"),
        ("data=2", "data=2,fsdp=1 needs 2 devices"),
        ("fsdp=4", "fsdp=4 needs a multiple of 4 devices"),
    ],
)
def test_devices_that_do_not_make_the_mesh_are_counted(word, needs):
    with pytest.raises(InputError, match=rf"^--mesh {needs}, found 6$"):
        device_mesh(parse_mesh(word), [*jax.devices()[:1]] * 6)


@pytest.mark.parametrize(
    # All of 32, 64 and 1100 leave a rest by 3; 66 does not, and 2 kernels have so many
    # inputs: 2 * 66 * 32 of some 56,000 numbers.
    ("d_ff", "share"),
    [(64, "0%"), (66, "8%")],
)
def test_a_model_of_which_little_divides_is_refused(d_ff, share):
    mesh = AbstractMesh((1, 3), ("data", "fsdp"))
    with pytest.raises(InputError) as caught:
        mesh_sharding(nnx.state(decoder(d_ff=d_ff)), mesh)
    assert str(caught.value) == (
        f"--mesh fsdp=3: only {share} of this model's weights can be divided by 3"
    )
    assert "a divisor of the model's width 32," in caught.value.hint


@pytest.mark.slow
def test_two_processes_share_a_mesh_and_read_their_halves(one, tmp_path):
    folder = tmp_path / "model"
    save_checkpoint(decoder(), None, folder)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    both = found_by(
        *(("half", tmp_path / f"{i}.npz", folder, port, i) for i in range(2)),
        n_devices=2,
    )
    size = (folder / "model.safetensors").stat().st_size
    for found in both:
        for word in ("fsdp=4", "data=2,fsdp=2"):
            for kind in KINDS:
                assert_same_scores(found, one, word, kind)
        # A half of each kernel and of the embedding; norms and the file's header apart.
        assert 0.48 * size < found["fsdp=4 read"] < 0.54 * size
        # Each process has a whole copy on its two devices.
        assert 0.95 * size < found["data=2,fsdp=2 read"] <= size
