"""The kernel on meshes of devices: the numbers of one, from parts of the weights."""

import socket

import jax
import numpy as np
import pytest
from mesh_process import decoder, scores, started

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.mesh import MeshShape, device_mesh, parse_mesh

WHOLE, DIVIDED = "data=8", "data=2,model=4"


def read(path):
    with path.open("rb") as file, np.load(file) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    out = tmp_path_factory.mktemp("mesh") / "found.npz"
    _, err = (process := started(out, n_devices=8)).communicate(timeout=300)
    assert process.returncode == 0, err
    return read(out)


@pytest.fixture(scope="module")
def one():
    return scores(decoder())


def assert_same_scores(found, one, word):
    for kind, values in one.items():
        # Rows of another batch shape, so another order of float32 sums; tokens of
        # about -7 nats and norms of about 1.
        np.testing.assert_allclose(
            found[f"{word} {kind}"], values, rtol=1e-5, atol=1e-5, err_msg=kind
        )


@pytest.mark.parametrize("word", [WHOLE, DIVIDED])
def test_a_mesh_gives_the_numbers_of_one_device(eight, one, word):
    assert_same_scores(eight, one, word)


def test_divided_weights_give_the_numbers_of_whole_ones(eight):
    for kind in ("tokens", "pairs", "norms"):
        np.testing.assert_allclose(
            # The same products of gathered weights.
            eight[f"{DIVIDED} {kind}"],
            eight[f"{WHOLE} {kind}"],
            rtol=1e-5,
            atol=1e-5,
        )


def test_rows_of_a_device_have_the_bits_of_the_same_rows_alone(eight):
    np.testing.assert_array_equal(eight["together"], eight["alone"])


def test_devices_with_whole_weights_never_talk(eight):
    assert list(eight[f"{WHOLE} collectives"]) == []


@pytest.mark.parametrize("word", [DIVIDED, "model=8"])
def test_each_divided_weight_is_gathered_once_and_nothing_else_is_sent(eight, word):
    # In the body of the loop over layers those of qkv, out, up and down; before it the
    # embedding, which is the head too.
    assert list(eight[f"{word} collectives"]) == ["all-gather"] * (4 + 1)


@pytest.mark.parametrize(
    ("word", "n_model"), [(WHOLE, 1), (DIVIDED, 4), ("model=8", 8)]
)
def test_a_device_keeps_its_share_and_needs_less_than_the_model(eight, word, n_model):
    whole = eight["bytes"]
    # Norms are on every device, and so are a few rows of ids.
    assert eight[f"{word} kept"] < 1.03 * whole / n_model
    # One layer of 24, the embedding and activations.
    assert eight[f"{word} needed"] < 0.2 * whole


def test_batches_divide_evenly_among_devices():
    from jaxcontam.scoring.batching import plan_batches

    batches = plan_batches([5, 9, 30] * 11, context=64, batch_tokens=64, n_devices=8)
    assert all(batch.n_rows % 8 == 0 for batch in batches)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(33))


def test_kernel_scores_on_every_local_device():
    assert local_scorer(decoder()).n_devices == len(jax.devices())


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        (None, MeshShape(None, 1)),
        ("model=2", MeshShape(None, 2)),
        ("data=4", MeshShape(4, 1)),
        ("data=4,model=2", MeshShape(4, 2)),
        ("model=2, data=4", MeshShape(4, 2)),
    ],
)
def test_mesh_is_spelled_in_any_order_and_in_part(word, shape):
    assert parse_mesh(word) == shape


@pytest.mark.parametrize(
    "word", ["", "4,2", "data=0", "data=-1", "modl=2", "data=2,data=2", "model=2,"]
)
def test_misspelled_mesh_is_one_line(word):
    with pytest.raises(InputError, match="--mesh names data and model") as caught:
        parse_mesh(word)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data=4,model=2", "--mesh data=4,model=2 needs 8 devices, here are 6"),
        ("data=2", "--mesh data=2,model=1 needs 2 devices, here are 6"),
        ("model=4", "--mesh model=4 needs a multiple of 4 devices, here are 6"),
    ],
)
def test_devices_that_do_not_make_the_mesh_are_counted(word, message):
    with pytest.raises(InputError) as caught:
        device_mesh(parse_mesh(word), [*jax.devices()[:1]] * 6)
    assert str(caught.value) == message


@pytest.mark.parametrize("flag", [["--mesh", "model=2"], ["--distributed"]])
def test_devices_of_a_served_model_are_not_ours_to_choose(flag, capsys):
    from jaxcontam.cli import main

    assert main(["score", "api:http://x/v1#m", "t.txt", "--out", "o", *flag]) == 2
    assert f"{flag[0]} goes with a model directory" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_share_a_mesh_and_read_their_halves(one, tmp_path):
    folder = tmp_path / "model"
    save_checkpoint(decoder(), None, folder)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    outs = [tmp_path / f"{process}.npz" for process in range(2)]
    running = [
        started(out, folder, port, process, n_devices=2)
        for process, out in enumerate(outs)
    ]
    for process in running:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    size = (folder / "model.safetensors").stat().st_size
    for out in outs:
        found = read(out)
        for word in ("model=4", "data=2,model=2"):
            assert_same_scores(found, one, word)
        # A half of each kernel and of the embedding; norms and the file's header apart.
        assert 0.48 * size < found["model=4 read"] < 0.54 * size
        # Each process has a whole copy on its two devices.
        assert 0.95 * size < found["data=2,model=2 read"] <= size
