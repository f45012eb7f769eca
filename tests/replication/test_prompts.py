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
    assert "SetName" in with_name
    assert "validation" in with_name
    assert "SetName" not in without
    assert "validation" not in without
    for prompt in (with_name, without):
        assert prompt.count("The first piece") == 1
        assert prompt.count("1 (yes)") == 1
        assert "hidden" not in prompt
        assert "{" not in prompt
    assert "word for word" in with_name
    assert "word for word" not in without


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


def write(tmp_path, tables, name="mine.json"):
    path = tmp_path / name
    path.write_text(json.dumps(tables))
    return path


def test_own_wording_gives_own_version(tmp_path):
    tables = {
        "name": "mine",
        "nli": {"guided": "{dataset_name}: {input}", "general": "Go on: {input}"},
    }
    prompts = load_prompts("nli", write(tmp_path, tables))
    assert guided(prompts, one_of()) == "SetName: The first piece"
    assert prompts.version.startswith("mine/nli@")
    tables["nli"]["general"] += "!"
    assert load_prompts("nli", write(tmp_path, tables)).version != prompts.version
    toml = tmp_path / "t.toml"
    toml.write_text('[nli]\nguided="{dataset_name}: {input}"\ngeneral="Go on: {input}"')
    assert load_prompts("nli", toml).version.startswith("t/nli@")
    assert (
        load_prompts("nli", toml).version.split("@")[1]
        == (prompts.version.split("@")[1])
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"guided": "{dataset_name}", "general": "{input}"}, "no place {input}"),
        ({"guided": "{input}{name}", "general": "{input}"}, "unknown place {name}"),
        ({"guided": "{input}!", "general": "{input}"}, "no place {dataset_name}"),
        (
            {"guided": "{input} {dataset_name}", "general": "{input} {split_name}"},
            "has the place {split_name}",
        ),
        (
            {"guided": "{dataset_name} {label} {input}", "general": "{input}"},
            "{label} and {input} in one line",
        ),
        ({"guided": "{input} {dataset_name}"}, "nli.general: must be a text"),
        ("x", "no templates of task 'nli'"),
    ],
)
def test_templates_that_cannot_work_are_refused(tmp_path, table, message):
    with pytest.raises(InputError) as found:
        load_prompts("nli", write(tmp_path, {"nli": table}))
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "{", "not json"),
        ("p.toml", "a = ", "not toml"),
        ("p.json", "[]", "must hold tables"),
        ("p.json", '{"name": 3}', "name must be a text"),
        ("p.yaml", "", "a .toml or a .json file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_prompts("nli", path)
    with pytest.raises(InputError, match="not readable"):
        load_prompts("nli", tmp_path / "absent.json")


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(InputError) as found:
        load_prompts("clasification")
    assert "did you mean 'classification'?" in found.value.hint
