"""Tasks of lm-evaluation-harness as benchmarks."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")


import datasets
from huggingface_hub import constants

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from tests.support.refused import refusal

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task file over local splits; a function of its folder builds another."""
    folder = tmp_path_factory.mktemp("task")
    rows = [
        {"question": f"What is {i} + 1?", "options": [f"{i}", f"{i + 1}"], "right": 1}
        for i in range(6)
    ]
    for split, kept in {"train": rows[:2], "test": rows[2:]}.items():
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        (folder / f"{split}.jsonl").write_text(lines)

    def write(name, **more):
        files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
        config = {"task": name, "dataset_path": "json", "test_split": "test"}
        config |= {"dataset_kwargs": {"data_files": files}}
        config |= {"output_type": "multiple_choice", "doc_to_choice": "options"}
        config |= {"doc_to_text": "Q: {{question}}\nA:", "doc_to_target": "right"}
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(config | more))
        return f"lm_eval:{path}"

    return write


@pytest.fixture(scope="module", autouse=True)
def own_datasets_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("datasets")
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        yield


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    class Manager:
        all_subtasks = ("t",)

        def __init__(self, **_):
            pass

        def load(self, names):
            modes = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
            raise OSError(f"offline: {modes}")

    def get_session():
        raise OSError("no network")

    monkeypatch.setattr("lm_eval.tasks.TaskManager", Manager)
    monkeypatch.setattr("huggingface_hub.utils.get_session", get_session)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    assert refusal(load_benchmark, "lm_eval:t")[0].endswith("offline: (True, True)")
    assert not (constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE)
    # As HF_DATASETS_OFFLINE=1 has it.
    datasets.config.HF_HUB_OFFLINE = True
    assert refusal(load_benchmark, "lm_eval:t")[0].endswith("offline: (False, True)")
    assert datasets.config.HF_HUB_OFFLINE


def test_a_task_is_its_split_with_right_answers_in_order(task):
    benchmark = load_benchmark(task("sums"))
    assert benchmark.name == "sums-test"
    assert benchmark.order_provenance == "published"
    assert benchmark.texts == tuple(
        f"Q: What is {i} + 1?\nA: {i + 1}" for i in range(2, 6)
    )
    assert benchmark.rows[0]["options"] == ["2", "3"]


def test_a_split_can_be_named_and_fields_fill_a_template(task):
    word = task("sums")
    assert len(load_benchmark(f"{word}:train")) == 2
    said, told = refusal(load_benchmark, f"{word}:tset")
    assert "unknown split" in said and "'test'" in told
    benchmark = load_benchmark(word, template="{question} {right}", limit=1)
    assert benchmark.texts == ("What is 2 + 1? 1",)
    assert load_benchmark(word, text_field="question").texts[1] == "What is 3 + 1?"
    broken = task("broken", doc_to_text="{{no_such_field.x}}")
    assert "cannot be loaded" in refusal(load_benchmark, broken)[0]


def test_a_target_that_is_text_stands_after_the_delimiter(task):
    plain = {"output_type": "generate_until", "doc_to_choice": None}
    plain |= {"doc_to_target": "{{options[1]}}", "target_delimiter": " -> "}
    word = task("plain", **plain)
    assert load_benchmark(word).texts[0] == "Q: What is 2 + 1?\nA: -> 3"


ORDERS = """
from datasets import Dataset

def backwards(docs):
    return docs.select(range(len(docs) - 1, -1, -2))

def later(docs):
    return docs.select([0, 1, 3])

def backwards_then_copied(docs):
    return backwards(docs).map(lambda doc: {"more": doc["question"]})

def made_anew(docs):
    fields = ("question", "options", "right")
    return Dataset.from_list([{name: doc[name] for name in fields} for doc in docs])
"""


def test_a_task_that_shuffles_is_refused_and_one_that_filters_is_not(task):
    word = task("mixed")
    path = Path(word.removeprefix("lm_eval:"))
    (path.parent / "order.py").write_text(ORDERS)
    original = path.read_text()[:-1]

    def process(function):
        path.write_text(original + f', "process_docs": !function order.{function}}}')

    for function in ("backwards", "backwards_then_copied"):
        process(function)
        with pytest.raises(InputError, match="differently from the dataset"):
            load_benchmark(word)
    process("later")
    kept = load_benchmark(word)
    assert [row["options"][0] for row in kept.rows] == ["2", "3", "5"]
    assert set(kept.rows[0]) == {"question", "options", "right"}
    assert kept.order_provenance == "published"
    process("made_anew")
    made = load_benchmark(word)
    assert (len(made), made.order_provenance) == (4, "unknown")


def test_names_are_looked_up_before_anything_is_loaded(monkeypatch):
    import lm_eval.tasks

    known = {"all_subtasks": ["arc_easy", "mmlu_law"], "all_groups": ["mmlu"]}
    found = SimpleNamespace(**known, all_tags=[])
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", lambda **_: found)
    said, told = refusal(load_benchmark, "lm_eval:mmlu")
    assert "a group of tasks" in said and "mmlu_law" in told
    said, told = refusal(load_benchmark, "lm_eval:arc_esay")
    assert "unknown task of lm_eval 'arc_esay'" in said
    assert "did you mean 'arc_easy'" in told
