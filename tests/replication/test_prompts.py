"""Instructions: what they hold, and what a file of other ones may not."""

import json

import pytest

from jaxcontam.errors import InputError
from jaxcontam.replication.instances import TASKS, load_prompts
from tests.support.instances import instance


def one_of(first="The first piece", label="1 (yes)"):
    return instance(first, "hidden second piece", label=label)


def guided(prompts, one):
    return prompts.guided_prompt(one, dataset_name="SetName", split_name="validation")


@pytest.mark.parametrize("task", [task for task in TASKS if task != "plain"])
def test_arms_differ_by_the_name_and_show_the_same_piece(task):
    prompts = load_prompts(task)
    with_name, without = guided(prompts, one_of()), prompts.general_prompt(one_of())
    assert prompts.has_arms
    for word in ("SetName", "validation", "word for word"):
        assert word in with_name and word not in without
    for prompt in (with_name, without):
        assert prompt.count("The first piece") == prompt.count("1 (yes)") == 1
        assert "hidden" not in prompt and "{" not in prompt


@pytest.mark.parametrize("task", TASKS)
def test_without_a_label_no_line_speaks_of_one(task):
    prompts = load_prompts(task)
    one = one_of(label=None)
    for prompt in (guided(prompts, one), prompts.general_prompt(one)):
        assert "abel" not in prompt
        assert "The first piece" in prompt


def test_plain_prompts_are_the_first_piece_alone():
    prompts = load_prompts("plain")
    assert not prompts.has_arms
    assert guided(prompts, one_of()) == "The first piece"
    assert prompts.general_prompt(one_of()) == "The first piece"


@pytest.mark.parametrize("task", ["classification", "nli"])
def test_braces_inside_texts_stay_what_they_are(task):
    prompts = load_prompts(task)
    one = one_of(first="{label} {0} {dataset_name} {{x}} %s", label="{input}")
    prompt = guided(prompts, one)
    assert "{label} {0} {dataset_name} {{x}} %s" in prompt
    assert prompt.count("{input}") == 1


def test_own_wording_gives_own_version(tmp_path):
    def loaded(name, text):
        path = tmp_path / name
        path.write_text(text)
        return load_prompts("nli", path)

    tables = {"guided": "{dataset_name}: {input}", "general": "Go on: {input}"}
    prompts = loaded("p.json", json.dumps({"name": "mine", "nli": tables}))
    assert guided(prompts, one_of()) == "SetName: The first piece"
    toml = loaded(
        "t.toml", "[nli]\n" + "\n".join(f"{k}='{v}'" for k, v in tables.items())
    )
    own, same = prompts.version.split("@"), toml.version.split("@")
    assert (own[0], same[0], own[1]) == ("mine/nli", "t/nli", same[1])
    tables["general"] += "!"
    assert loaded("p.json", json.dumps({"nli": tables})).version.split("@")[1] != own[1]


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(InputError) as found:
        load_prompts("clasification")
    assert "did you mean 'classification'?" in found.value.hint
