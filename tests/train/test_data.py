"""Corpora by name, damage in their files; batches shared out without remainder."""

import gzip
import json
import shutil
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.errors import InputError
from train.data import (
    MAX_DOCUMENT,
    Rows,
    open_corpus,
    read_documents,
    row_batches,
)
from train.plant import training_order

TEXTS = [f"example number {i} é" for i in range(50)]
VERSIONS = {"1.0.0": "array_record", "1.1.0": "array_record", "0.9.0": "parquet"}


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    """Data folder with three versions of tiny, one of them not as array_record."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Tiny(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.1.0")

        def _info(self):
            features = {"id": np.int32, "text": tfds.features.Text()}
            return tfds.core.DatasetInfo(
                builder=self,
                disable_shuffling=True,
                features=tfds.features.FeaturesDict(features),
            )

        def _split_generators(self, dl):
            return {"train": self._rows(50), "test": self._rows(20)}

        def _generate_examples(self):
            raise NotImplementedError

        def _rows(self, n):
            for i, text in enumerate(TEXTS[:n]):
                yield i, {"id": i, "text": text}

    folder = tmp_path_factory.mktemp("tfds")
    tfds.disable_progress_bar()
    for version, file_format in VERSIONS.items():
        Tiny.VERSION = tfds.core.Version(version)
        Tiny(data_dir=folder, file_format=file_format).download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=2)
        )
    return folder


@pytest.fixture
def in_tfds_folder(tfds_folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_folder))
    return tfds_folder


def test_a_prepared_split_and_its_slices_are_read_without_tensorflow(
    in_tfds_folder, monkeypatch
):
    for split, expected in (
        ("train", TEXTS),
        ("train[:10]", TEXTS[:10]),
        ("train[40:]", TEXTS[40:]),
        ("train[10%:20%]", TEXTS[5:10]),
        ("test+train[:2]", TEXTS[:20] + TEXTS[:2]),
    ):
        assert read_documents([f"tfds:tiny/{split}"]) == expected
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    folder = in_tfds_folder / "tiny/1.0.0"
    assert read_documents([f"tfds:{folder}/test"]) == TEXTS[:20]


def test_the_latest_version_is_taken(in_tfds_folder):
    (part,) = open_corpus(["tfds:tiny/train"]).parts
    assert "1.1.0" in part.identity and part.n_bytes > 1000


@pytest.mark.parametrize(
    ("word", "field", "message", "hint"),
    [
        ("tfds:tiny", "text", "tfds:tiny: not tfds:NAME/SPLIT", "such as"),
        ("tfds:tiny/trian", "text", "unknown split 'trian'", "'train'"),
        ("tfds:tiny/train[:x]", "text", "tfds:tiny/train[:x]: ", ""),
        ("tfds:tiny/train[:999]", "text", "incompatible with 50 examples", ""),
        ("tfds:tiny/train", "body", "no field 'body' (it has: ", "--text-field"),
        ("tfds:tiny:0.9.0/train", "text", "prepared as parquet", "--file_format=array"),
        ("tfds:tiny:7.0.0/train", "text", "7.0.0: not prepared under", "TFDS_DATA_DIR"),
        ("tfds:/no/such/place/train", "text", "tfds:/no/such/place: not prepared", ""),
        (
            *("tfds:wiki40b/en/train", "text", "tfds:wiki40b/en: not prepared under"),
            "tfds build wiki40b/en --file_format=array_record",
        ),
    ],
)
def test_bad_tfds_words_are_named(in_tfds_folder, word, field, message, hint):
    with pytest.raises(InputError) as caught:
        open_corpus([word], text_field=field)
    assert message in str(caught.value) and hint in caught.value.hint


def test_a_file_with_other_records_than_its_info_says_is_refused(tfds_folder, tmp_path):
    folder, word = tmp_path / "1.0.0", f"tfds:{tmp_path}/1.0.0/train"
    shutil.copytree(tfds_folder / "tiny/1.0.0", folder)
    train, test = (min(folder.glob(f"*{name}*")) for name in ("train", "test"))
    whole = train.read_bytes()
    for damaged, words in (
        (test.read_bytes(), "10 records, not the 25 of"),
        (whole[:-7], "train"),
        (b"", "train"),
    ):
        train.write_bytes(damaged)
        with pytest.raises(InputError, match=words):
            read_documents([word])
    more = tmp_path / "more"
    shutil.copytree(tfds_folder / "tiny/1.0.0", more)
    shutil.copy(min(more.glob("*train*")), min(more.glob("*test*")))
    with pytest.raises(InputError, match="25 records, not the 10 of"):
        read_documents([f"tfds:{more}/test"])
    train.unlink()
    with pytest.raises(InputError, match="no such file, though dataset_info"):
        read_documents([word])


def test_files_of_a_split_on_the_hub_are_read_in_their_order(monkeypatch, tmp_path):
    paths = [tmp_path / f"train-{i}-of-2.jsonl" for i in range(2)]
    for i, path in enumerate(paths):
        path.write_text(json.dumps({"text": f"file {i}", "id": i}) + "\n")
    asked = []

    def download_split(wanted):
        asked.append((wanted.dataset, wanted.config, wanted.split))
        return tuple(paths)

    monkeypatch.setattr("train.data.download_split", download_split)
    assert read_documents(["hf:org/name:en:train"]) == ["file 0", "file 1"]
    assert asked == [("org/name", "en", "train")]
    with pytest.raises(InputError, match=r"train-0-of-2.jsonl:1: no field 'body'"):
        read_documents(["hf:boolq:train"], text_field="body")
    with pytest.raises(InputError, match="hf:boolq: not a split on the hub"):
        read_documents(["hf:boolq"])


def test_a_txt_is_one_document_and_damage_is_named_and_never_passed_over(tmp_path):
    one, none = tmp_path / "one.txt", tmp_path / "none.txt"
    one.write_bytes("\ufefffirst\r\nsecond é\n".encode())
    none.write_text(" \n")
    (tmp_path / "two.txt.gz").write_bytes(gzip.compress(b"packed"))
    found = ["first\r\nsecond é\n", "packed"]
    assert read_documents([one, none, tmp_path / "two.txt.gz"]) == found
    table = pyarrow.table({"text": ["a", "b"], "n": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert read_documents([tmp_path / "t.parquet"]) == ["a", "b"]
    for name, data, field, message, hint in (
        ("long.txt", b"a" * (MAX_DOCUMENT + 1), "text", "over 16 MiB", ".jsonl"),
        ("long.txt", b"a b\n" * (MAX_DOCUMENT // 2), "text", "over 16 MiB", ".jsonl"),
        ("bad.txt", b"a\nb\xff", "text", r"bad.txt:2: not UTF-8 \(0xff\)", "mend"),
        ("bad.txt.gz", gzip.compress(b"a" * 99)[:-9], "text", "nothing from", "mend"),
        ("bad.jsonl", b'{"text": "a"}\n{\n', "text", "bad.jsonl:2: ", "mend"),
        ("half.jsonl", b'{"text": "\\ud83d"}\n', "text", "half.jsonl:1: ", "mend"),
        ("t.parquet", None, "body", "no field 'body'", "--text-field"),
        ("t.parquet", None, "n", "field 'n' is not a string", "mend"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message) as caught:
            read_documents([tmp_path / name], text_field=field)
        assert hint in caught.value.hint


CONTEXT = 16


@pytest.fixture
def rows():
    """62 rows."""
    ids = np.random.default_rng(1).integers(0, 60_000, 1000).astype(np.uint16)
    starts = training_order(len(ids), CONTEXT, seed=3)
    return Rows(ids, starts, CONTEXT)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_batches_are_rows_in_their_order_shared_out_without_the_remainder(rows, n):
    shares = [
        row_batches(rows, batch_rows=8, n_steps=7, process=i, n_processes=n)
        for i in range(n)
    ]
    parts = np.array([list(share) for share in shares])
    assert parts.dtype == np.int32
    expected = np.stack([rows[i] for i in range(56)])
    # Rows of a step go to the processes in turn.
    found = np.moveaxis(parts, 0, 2).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_a_state_of_one_process_serves_two(rows):
    alone = row_batches(rows, batch_rows=8, n_steps=7)
    next(alone)
    second = row_batches(rows, batch_rows=8, n_steps=7, process=1, n_processes=2)
    second.set_state(alone.get_state())
    np.testing.assert_array_equal(next(second), next(alone)[1::2])
