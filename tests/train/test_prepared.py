"""Data sets by name: prepared splits of every format, and the hub."""

import json
import shutil
import struct
import sys

import numpy as np
import pytest

from jaxcontam.errors import InputError
from train.readers import array_records
from train.sources import open_corpus, read_documents

N_TRAIN = 50


def tiny_texts(n):
    return [f"example number {i} é" for i in range(n)]


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    """Data folder with tiny as tfrecord, array_record and parquet, a version each."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Tiny(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.1.0")

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                disable_shuffling=True,
                features=tfds.features.FeaturesDict(
                    {"id": np.int32, "text": tfds.features.Text()}
                ),
            )

        def _split_generators(self, dl):
            return {"train": self._rows(N_TRAIN), "test": self._rows(20)}

        def _generate_examples(self):
            raise NotImplementedError

        def _rows(self, n):
            for i, text in enumerate(tiny_texts(n)):
                yield i, {"id": i, "text": text}

    folder = tmp_path_factory.mktemp("tfds")
    tfds.disable_progress_bar()
    for version, file_format in (("1.0.0", "array_record"), ("1.1.0", "parquet")):
        Tiny.VERSION = tfds.core.Version(version)
        Tiny(data_dir=folder, file_format=file_format).download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=2)
        )
    write_as_tfrecord(folder / "tiny/1.0.0", folder / "tiny/0.9.0")
    return folder


def write_as_tfrecord(source, target):
    """The same data set in TensorFlow's own format, whose sums nobody checks here."""
    target.mkdir()
    about = json.loads((source / "dataset_info.json").read_text())
    about |= {"fileFormat": "tfrecord", "version": "0.9.0"}
    (target / "dataset_info.json").write_text(json.dumps(about))
    (target / "features.json").write_bytes((source / "features.json").read_bytes())
    for path in source.glob("*.array_record-*"):
        frames = (
            struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0)
            for record in array_records(path)
        )
        name = path.name.replace("array_record", "tfrecord")
        (target / name).write_bytes(b"".join(frames))


@pytest.fixture
def in_tfds_folder(tfds_folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_folder))
    return tfds_folder


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "1.1.0"])
def test_a_prepared_split_is_read_whatever_its_format(in_tfds_folder, version):
    found = read_documents([f"tfds:tiny:{version}/train"])
    assert found == tiny_texts(N_TRAIN)
    folder = in_tfds_folder / "tiny" / version
    assert read_documents([f"tfds:{folder}/test"]) == tiny_texts(20)


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "1.1.0"])
@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:10]", tiny_texts(N_TRAIN)[:10]),
        ("train[40:]", tiny_texts(N_TRAIN)[40:]),
        ("train[10%:20%]", tiny_texts(N_TRAIN)[5:10]),
        ("test+train[:2]", tiny_texts(20) + tiny_texts(2)),
    ],
)
def test_a_slice_is_a_slice_in_every_format(in_tfds_folder, version, split, expected):
    assert read_documents([f"tfds:tiny:{version}/{split}"]) == expected


def test_the_latest_version_is_taken(in_tfds_folder):
    part, _ = open_corpus(["tfds:tiny/train"]).parts
    assert "1.1.0" in part.name


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "1.1.0"])
def test_no_format_needs_tensorflow(in_tfds_folder, version, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert len(read_documents([f"tfds:tiny:{version}/test"])) == 20


@pytest.mark.parametrize(
    ("word", "field", "message"),
    [
        ("tfds:tiny", "text", "tfds:tiny: not tfds:NAME/SPLIT"),
        ("tfds:tiny/trian", "text", "unknown split 'trian'"),
        ("tfds:tiny/train[:x]", "text", "tfds:tiny/train[:x]: "),
        ("tfds:tiny/train[:999]", "text", "incompatible with 50 examples"),
        ("tfds:tiny/train", "body", "no field 'body' (it has: "),
        ("tfds:tiny:7.0.0/train", "text", "tfds:tiny:7.0.0: not prepared under"),
        ("tfds:wiki40b/en/train", "text", "tfds:wiki40b/en: not prepared under"),
    ],
)
def test_bad_tfds_words_are_named(in_tfds_folder, word, field, message):
    with pytest.raises(InputError) as caught:
        open_corpus([word], text_field=field)
    assert message in str(caught.value)
    assert caught.value.hint or "999" in word or ":x]" in word


def test_what_is_not_prepared_says_how_to_prepare_it(in_tfds_folder):
    with pytest.raises(InputError) as caught:
        open_corpus(["tfds:bool_q/train"])
    assert "tfds.builder('bool_q', file_format='array_record')" in caught.value.hint
    assert "TFDS_DATA_DIR" in caught.value.hint


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "1.1.0"])
def test_a_file_with_other_records_than_its_info_says_is_refused(
    tfds_folder, tmp_path, version
):

    folder = tmp_path / version
    shutil.copytree(tfds_folder / "tiny" / version, folder)
    train, test = (min(folder.glob(f"*{name}*")) for name in ("train", "test"))
    train.write_bytes(test.read_bytes())
    with pytest.raises(InputError, match="10 records, not the 25 of dataset_info"):
        read_documents([f"tfds:{folder}/train"])
    train.unlink()
    with pytest.raises(InputError, match="no such file, though dataset_info"):
        read_documents([f"tfds:{folder}/train"])


def test_a_truncated_tfrecord_is_noticed(tfds_folder, tmp_path):

    folder = tmp_path / "0.9.0"
    shutil.copytree(tfds_folder / "tiny/0.9.0", folder)
    train = min(folder.glob("*train*"))
    train.write_bytes(train.read_bytes()[:-7])
    with pytest.raises(InputError, match=r":25: not readable from here on"):
        read_documents([f"tfds:{folder}/train"])


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Two files of a split, as the hub's cache holds them."""
    paths = [tmp_path / f"train-{i}-of-2.jsonl" for i in range(2)]
    for i, path in enumerate(paths):
        path.write_text(json.dumps({"text": f"file {i}", "id": i}) + "\n")
    asked = []

    def download_split(wanted):
        asked.append((wanted.dataset, wanted.config, wanted.split))
        return tuple(paths)

    monkeypatch.setattr("train.sources.download_split", download_split)
    return asked


def test_files_of_a_split_on_the_hub_are_read_in_their_order(hub):
    assert read_documents(["hf:org/name:en:train"]) == ["file 0", "file 1"]
    assert hub == [("org/name", "en", "train")]


@pytest.mark.parametrize(
    ("word", "field", "message"),
    [
        ("hf:boolq", "text", "hf:boolq: not a split on the hub"),
        ("hf:boolq:train", "body", "train-0-of-2.jsonl:1: no field 'body'"),
    ],
)
def test_bad_words_of_the_hub_are_named(hub, word, field, message):
    with pytest.raises(InputError) as caught:
        read_documents([word], text_field=field)
    assert message in str(caught.value)
