"""From a file to a verdict, with models that know a partition and that do not."""

import re

import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.control import judge_result
from jaxcontam.replication.design import ReplicationDesign
from jaxcontam.replication.instances import draw_instances, find_fields, load_prompts
from jaxcontam.replication.judges import judge_local, judge_version
from jaxcontam.replication.overlap import ROUGE_L, overlap_results, overlap_scores
from jaxcontam.scoring.completer import Completion

WORDS = (
    "amber",
    "bold",
    "cedar",
    "dusk",
    "elm",
    "fern",
    "gold",
    "hill",
    "iris",
    "jade",
)


def some_rows(n, task):
    """Texts whose second halves nobody can guess from the first."""
    rows = []
    for i in range(n):
        one, other = (
            " ".join(WORDS[(i * step + j * j) % len(WORDS)] for j in range(9))
            for step in (3, 5)
        )
        if task == "nli":
            rows.append({"premise": f"No {i}: {one}.", "hypothesis": f"{other} {i}."})
        else:
            rows.append({"text": f"No {i}: {one}. Then {other} {i}. So {one} it is."})
    return rows


class Model:
    """Continues what it has read, where the prompt says what it knows it as."""

    name = "fake"

    def __init__(self, texts, *, known_as=""):
        self.texts = texts
        self.known_as = known_as

    def complete(self, prompts, **_):
        return [(Completion(text=self.answer(prompt)),) for prompt in prompts]

    def answer(self, prompt):
        if self.known_as in prompt:
            for text in self.texts:
                head = re.split(r"[.:] ", text)[0]
                if re.search(rf"\b{re.escape(head)}\b", prompt):
                    # From where the prompt breaks off.
                    shown = max(
                        (k for k in range(len(text)) if text[:k] in prompt), default=0
                    )
                    return text[shown:]
        return "and that was all there is to say about it in the end"


@pytest.mark.parametrize("task", ["classification", "nli", "plain"])
@pytest.mark.parametrize("knows", ["by name", "always", "never"])
def test_what_a_model_has_read_is_found_and_nothing_else(task, knows):
    rows = some_rows(20, task)
    benchmark = Benchmark("set", tuple(map(str, rows)), tuple(rows))
    design = ReplicationDesign(task=task, k=12)
    drawn = draw_instances(benchmark, find_fields(benchmark, design), design)
    prompts = load_prompts(task)
    read = [" ".join(row.values()) for row in rows] if knows != "never" else []
    model = Model(read, known_as="TheSet" if knows == "by name" else "")
    guided, general = (
        [one for (one,) in model.complete(texts, max_tokens=500)]
        for texts in (
            [
                prompts.guided_prompt(one, dataset_name="TheSet", split_name="test")
                for one in drawn.instances
            ],
            [prompts.general_prompt(one) for one in drawn.instances],
        )
    )
    exact, *_ = overlap_results(
        ROUGE_L.name,
        overlap_scores(ROUGE_L, drawn.instances, guided),
        overlap_scores(ROUGE_L, drawn.instances, general),
        benchmark="set",
        fingerprint=drawn.fingerprint,
        prompt_version=prompts.version,
        seed=0,
    )
    judged = judge_result(
        judge_local(drawn.instances, guided),
        method="judge_local",
        benchmark="set",
        fingerprint=drawn.fingerprint,
        judge_version=judge_version(),
        prompt_version=prompts.version,
    )
    # Comparing arms finds what the name brings out, and only that.
    by_name = knows == "by name" and task != "plain"
    assert exact.verdict == ("suspected" if by_name else "no evidence")
    # Copies show whatever brought them out; plain prompts name nothing.
    copies = knows == "always" or by_name
    assert judged.verdict == ("suspected" if copies else "no evidence")
    assert judged.n_exact == (12 if copies else 0)
    assert judged.n_near == 0
