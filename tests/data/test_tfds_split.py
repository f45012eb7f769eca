"""Prepared TFDS splits as benchmarks."""

import io

import numpy as np
import pytest
from PIL import Image

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark

QUESTIONS = [f"What is {i} and {7 * i % 40}?" for i in range(40)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of one data set, in its own order and shuffled."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Quiz(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        keeps_order = True

        def _info(self):
            f = tfds.features
            features = {
                "question": f.Text(),
                "options": f.Sequence(f.Text()),
                "answer": f.ClassLabel(num_classes=4),
                "picture": f.Image(shape=(2, 2, 3)),
                "bytes": f.Tensor(shape=(), dtype=np.bytes_),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                disable_shuffling=self.keeps_order,
                features=f.FeaturesDict(features),
            )

        def _split_generators(self, dl):
            return {"test": self._generate_examples()}

        def _generate_examples(self):
            for i, text in enumerate(QUESTIONS):
                row = {"question": text, "options": ["a", "é"], "answer": i % 4}
                row |= {"picture": io.BytesIO(picture.getvalue())}
                yield i, row | {"bytes": b"\xff"}

    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "png")
    tfds.disable_progress_bar()
    found = []
    for keeps_order in (True, False):
        Quiz.keeps_order = keeps_order
        folder = tmp_path_factory.mktemp("tfds")
        Quiz(data_dir=folder, file_format="array_record").download_and_prepare()
        found.append(folder / "quiz/1.0.0")
    return found


def test_rows_are_read_with_their_fields_and_without_pictures(folders):
    file = load_benchmark(f"tfds:{folders[0]}/test", limit=30)
    # In one order, whatever TFDS's is in this process.
    row = f'{{"answer": 3, "options": ["a", "é"], "question": "{QUESTIONS[3]}"}}'
    assert file.texts[3] == row
    assert file.name == "quiz-1.0.0-test"
    assert file.rows[3] == {
        "question": QUESTIONS[3],
        "options": ["a", "é"],
        "answer": 3,
    }
    assert file.left_out == ("fields that are no text left out: picture, bytes",)
    template = load_benchmark(
        f"tfds:{folders[0]}/test", template="{question} {options[1]}"
    )
    assert template.texts == tuple(f"{text} é" for text in QUESTIONS)
    versions = load_benchmark(
        f"tfds:{folders[0].parent}/test[:2]+test[38:]", text_field="question"
    )
    assert versions.texts == (*QUESTIONS[:2], *QUESTIONS[38:])
    alone = f"tfds:{folders[0].parent}:1.0.0/test"
    assert load_benchmark(alone).texts[:30] == file.texts


def test_a_shuffled_split_is_of_unknown_order(folders):
    kept, mixed = (
        load_benchmark(f"tfds:{folder}/test", text_field="question")
        for folder in folders
    )
    assert kept.texts == tuple(QUESTIONS)
    assert sorted(mixed.texts) == sorted(QUESTIONS) != list(mixed.texts)
    assert (kept.order_provenance, mixed.order_provenance) == ("published", "unknown")


def test_a_split_is_a_benchmark_of_a_command(folders, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(folders[1].parents[1]))
    assert main(["doctor", "tfds:quiz/test"]) == 0
    assert "40 examples" in capsys.readouterr().out
    assert main(["doctor", "tfds:quiz/tset"]) == 2
    assert "unknown split 'tset'" in capsys.readouterr().out
