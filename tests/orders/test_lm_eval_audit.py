"""The harness's model `jaxcontam_audit`: verdicts in its own results, end to end."""

import json

import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

import datasets
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.orders import harness as lm_eval_audit
from jaxcontam.orders.harness import AuditedLM

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, pulse):
    """Task files of a planted and a clean split: name -> path."""
    folder, paths = tmp_path_factory.mktemp("tasks"), {}
    for name, file in {"planted": "pydocs-50", "clean": "pydocs-0a"}.items():
        lines = (pulse / f"sets/{file}.txt").read_text().splitlines()
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        paths[name] = folder / f"{name}.yaml"
        config = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "word_perplexity"}],
        }
        paths[name].write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        yield paths


@pytest.fixture
def load(tasks, monkeypatch):
    """The harness's names of the tasks find their files."""

    def load(word):
        return load_benchmark(f"lm_eval:{tasks[word.removeprefix('lm_eval:')]}")

    monkeypatch.setattr(lm_eval_audit, "load_benchmark", load)


def test_results_hold_a_verdict_of_each_task(pulse, tasks, load, tmp_path):
    folder = tmp_path / "report"
    name = str(pulse / "model")
    arguments = {"pretrained": name, "order": "random", "report": str(folder)}
    results = simple_evaluate(
        model="jaxcontam_audit",
        model_args=arguments,
        tasks=list(map(str, tasks.values())),
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
    )
    block = results["config"]["contamination"]
    assert block["planted"]["verdict"] == "contaminated"
    assert block["planted"]["p_adjusted"] <= 1e-3
    assert block["clean"]["verdict"] in ("no evidence", "inconclusive")
    assert block["clean"]["p_adjusted"] > 0.05
    assert block["planted"]["test"] == "adjacency"
    assert main(["verify", str(folder)]) == 0
    document = json.loads((folder / "report.json").read_text())
    assert document["digest"] == block["planted"]["report_digest"]
    # The same verdicts by the command, from the harness's own file.
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results, default=str))
    same = ["--same", f"{name}=quickstart"]
    assert main(["annotate", str(path), "--audit", str(folder), *same]) == 0
    annotated = json.loads((tmp_path / "results.annotated.json").read_text())
    assert annotated["contamination"] == block


def test_an_audit_that_cannot_be_made_is_told_and_loses_no_score(pulse, load):
    lm = AuditedLM(str(pulse / "model"), reference="/nowhere")
    request = Instance("loglikelihood", {}, ("a", " b"), 0, ("clean", 0, 1))
    assert len(lm.loglikelihood([request], disable_tqdm=True)) == 1
    found = lm.get_model_info()["contamination"]["clean"]
    assert found["verdict"] is None
    assert "/nowhere" in found["why"]
    # A flag that is none is told before anything is scored.
    with pytest.raises(InputError, match="unknown test 'stratifed'"):
        AuditedLM(str(pulse / "model"), tests="stratifed")
