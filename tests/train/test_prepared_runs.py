"""A run whose data was prepared elsewhere."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.errors import InputError
from tests.support.train_corpus import write_corpus
from train.manifest import read_manifest, write_manifest
from train.prepare import STREAM_NAME
from train.presets import PRESETS
from train.pretrain import Pretrain

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def command(tmp_path):
    docs, canaries = write_corpus(tmp_path)
    return Pretrain(
        corpus=(str(docs),),
        canaries=(f"{canaries}=3",),
        preset="pulse",
        out=tmp_path / "run",
        prepared=str(tmp_path / "prepared"),
    )


def test_a_prepared_run_has_the_stream_and_weights_of_one_that_reads_its_text(
    command, tmp_path
):
    whole = dataclasses.replace(command, prepared=None, out=tmp_path / "whole")
    expected = whole.run()
    command.prepare()
    manifest = tmp_path / "prepared" / "manifest.json"
    prepared = read_manifest(manifest)
    assert prepared.code == expected.code
    # The code that trained is the run's, not the one that prepared it.
    write_manifest(dataclasses.replace(prepared, code="earlier"), manifest)
    (tmp_path / "docs.jsonl").unlink()
    found = command.run()
    assert found.finished and found == expected
    np.testing.assert_array_equal(
        np.load(command.out / STREAM_NAME), np.load(whole.out / STREAM_NAME)
    )
    weights = "model/model.safetensors"
    assert (command.out / weights).read_bytes() == (whole.out / weights).read_bytes()
    # What was prepared serves other runs, too.
    again = dataclasses.replace(command, out=tmp_path / "again", audit_at=(1.0,))
    assert again.run().finished


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": 1}, r"another run \(seed was 0, is 1\)"),
        ({"batch_rows": 2}, r"another run \(recipe.batch_rows was 4, is 2\)"),
        ({"separator": ""}, r"another run \(separator was '\\n', is ''\)"),
        ({"allow_overlap": True}, r"another run \(allow_overlap was False, is True\)"),
        ({"canaries": ()}, r"another run \(sets differ\)"),
    ],
)
def test_what_was_prepared_for_another_run_is_refused(command, fields, message):
    command.prepare()
    with pytest.raises(InputError, match=message):
        dataclasses.replace(command, **fields).run()


def test_a_place_where_nothing_was_prepared_says_what_to_run(command):
    with pytest.raises(InputError, match="nothing is prepared there") as caught:
        command.run()
    assert "train.prepare" in caught.value.hint


def test_the_folder_of_a_run_is_not_that_of_its_data(command, tmp_path):
    with pytest.raises(InputError, match="must be two folders"):
        dataclasses.replace(command, out=tmp_path / "prepared")


def test_a_stream_that_was_cut_short_is_refused(command, tmp_path):
    command.prepare()
    path = tmp_path / "prepared" / STREAM_NAME
    np.save(path, np.load(path)[:-1])
    with pytest.raises(InputError, match="not as long as its manifest says"):
        command.run()


def test_what_audits_will_cut_is_said_before_anything_trains(command, tmp_path, capsys):
    context = PRESETS["pulse"].decoder.context
    short = tmp_path / "quiz.txt"
    long = tmp_path / "long.txt"
    # Each word is a token at least.
    long.write_text("".join(f"{'word ' * context}{i}\n" for i in range(6)))
    sets = (f"{short}=3", f"{long}=1")
    dataclasses.replace(command, canaries=sets).prepare()
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "cut" in line]
    assert said.startswith(f"long: audits of a model with a context of {context} ")
    assert f"cut 6 of 6 to {(context - 1) // 2} tokens" in said
