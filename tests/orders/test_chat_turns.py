"""`audit --separator chat:TURN`: examples as turns of a chat, and tuned models."""

import json
import shutil
import types

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.orders.benchmarks import read_files
from jaxcontam.orders.chat_turns import chat_texts, tuning_notes
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.run import plan_audit
from jaxcontam.scoring.load import load
from tests.models.test_tokenizer_file import TOKENIZERS
from tests.models.test_tokenizer_file import folder as tokenizer_folder
from tests.support.membership_model import fast_tokenizer, fresh_decoder

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def with_template(folder, template=TEMPLATE):
    """Give the model of a folder a chat template."""
    path = folder / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"chat_template": template}))
    return folder


@pytest.fixture
def chat_model(pulse, tmp_path):
    """A model with a chat template."""
    return with_template(shutil.copytree(pulse / "model", tmp_path / "chat"))


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ("user", '<user>{"question": "Who?", "answer": "Me"}\n'),
        ("assistant", '<user>\n<assistant>{"question": "Who?", "answer": "Me"}\n'),
        ("both", "<user>Who?\n<assistant>Me\n"),
    ],
)
def test_each_example_is_what_the_template_writes(chat_model, tmp_path, turn, text):
    path = tmp_path / "file.jsonl"
    path.write_text('{"question": "Who?", "answer": "Me"}\n')
    model = load(chat_model)
    assert chat_texts(model, turn, load_benchmark(path))[0] == [text]


def test_a_chat_is_read_with_the_space_that_stands_before_a_text_in_tuning(tmp_path):
    template = "<s>[{{ messages[0].content }}]"
    made = TOKENIZERS["sentencepiece"]
    folder = tokenizer_folder(tmp_path, made, chat_template=template)
    model = types.SimpleNamespace(
        name="m",
        checkpoint=types.SimpleNamespace(folder=folder),
        tokenizer=plain_tokenizer(made),
        prefix_id=1,
        context=99,
        given_tokenizer=None,
        vocab_size=None,
    )
    texts = [f"two spaces {i}" for i in range(12)]
    design = AuditDesign(tests="stratified", separator="chat:user", order=("random",))
    files = read_files(texts, design)
    (planned,), _ = plan_audit(files.benchmarks, files, model, design)
    expected = [made.encode(f"<s>[{text}]", add_special_tokens=False) for text in texts]
    found = [ids.tolist() for ids in planned.encoded.ids]
    assert found == [one.ids for one in expected]
    assert expected[0].tokens[:2] == ["<s>", "▁"]


def test_template_of_a_tokenizer_in_memory_is_used():
    tokenizer, lines = fast_tokenizer(), Benchmark("b", ("of",), (None,))
    tokenizer.chat_template = TEMPLATE
    model = load(fresh_decoder(), tokenizer=tokenizer)
    assert chat_texts(model, "user", lines)[0] == ["<user>of\n"]


def test_report_says_that_a_tuned_model_read_chats(chat_model, tmp_path, capsys):
    path, out = tmp_path / "file.txt", tmp_path / "out"
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice([*"abcdefgh"], 4)) for _ in range(60)]
    path.write_text("\n".join(dict.fromkeys(lines)))
    words = [
        "audit",
        str(chat_model),
        str(path),
        "--order",
        "random",
        "--out",
        str(out),
    ]
    assert main([*words, "--separator", "chat:user"]) == 0
    warnings = json.loads((out / "report.json").read_text())["results"][0]["warnings"]
    assert any("as the user's turn of a chat, by the model's" in w for w in warnings)
    assert any("may have been tuned (chat template)" in w for w in warnings)
    page = " ".join((out / "report.html").read_text().split())
    assert "a null result says less than one for its base model" in page
    assert main(["verify", str(out)]) == 0


@pytest.mark.parametrize(
    ("template", "card", "said"),
    [
        (None, "A model of small things.", []),
        (TEMPLATE, "", ["may have been tuned (chat template)"]),
        (TEMPLATE + "<think>", "", ["chat template with thoughts"]),
        (None, "Trained with GRPO.", ["may have been tuned ('GRPO' in its card)"]),
    ],
)
def test_tuned_models_are_told(pulse, tmp_path, template, card, said):
    folder = shutil.copytree(pulse / "model", tmp_path / "m")
    if template is not None:
        with_template(folder, template)
    (folder / "README.md").write_text(card)
    notes = tuning_notes(load(folder))
    assert len(notes) == len(said)
    assert all(words in note for words, note in zip(said, notes, strict=True))


@pytest.mark.parametrize(
    ("template", "turn", "words"),
    [
        (TEMPLATE.replace("m.content", "m.text"), "user", "leaves out .* b: example 1"),
        (TEMPLATE.replace("m.content", "m.content[:2]"), "user", "out .*: example 2"),
        (
            TEMPLATE.replace("in messages", "in messages if m.role == 'user'"),
            "assistant",
            "leaves out text of b: example 1",
        ),
        (TEMPLATE + "{{ strftime_now('%f') }}", "user", "reads the clock"),
        (None, "user", "has no chat template"),
        (TEMPLATE, "both", "b: example 1: --separator chat:both needs"),
    ],
)
def test_templates_that_lose_text_are_refused(chat_model, template, turn, words):
    lines = Benchmark("b", ("of", "longer"), (None, None))
    with pytest.raises(InputError, match=words):
        chat_texts(load(with_template(chat_model, template)), turn, lines)
    # A date is no clock.
    dated = load(with_template(chat_model, TEMPLATE + "{{ strftime_now('%Y') }}"))
    (one, other), _ = chat_texts(dated, "user", lines)
    assert one[-4:] == other[-4:] and one[-4:].isdigit()
