"""Folders of models that are damaged, or made by strangers: one line, nothing changed.

Little time and memory are taken, nothing is scored, and no part of another folder read.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxcontam as jc
from jaxcontam.cli.main import main
from jaxcontam.data import encoding, model_files
from jaxcontam.errors import InputError
from jaxcontam.models import chat_template
from jaxcontam.models.chat import read_chat_layout
from jaxcontam.models.checkpoint import load_checkpoint, read_fast_tokenizer
from jaxcontam.orders.chat_turns import tuning_notes
from jaxcontam.overlap.nearest import StaticEmbeddings
from jaxcontam.replication.bleurt import Bleurt
from jaxcontam.scoring.remote import read_local_tokenizer
from tests.faults.folders import OF_HERE, allowed, confined, contents, said
from tests.faults.fuzzed import a_file, as_json, changed, damaged
from tests.faults.test_fuzz import fuzz

pytestmark = pytest.mark.unoptimised


def refusal(folder, capsys, *more):
    """What an audit says of a model; its folder and that of the output stay."""
    out = folder.parent / "out"
    before = contents(folder)
    words = ["audit", folder, folder.parent / "b.txt", "--tests", "reversal", *more]
    message = said([*words, "--out", out, "--store", "none"], capsys)
    assert contents(folder) == before
    assert contents(out) == {}
    return message


def put(path, **fields):
    """A JSON file with other fields."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def spoil(folder, name, change):
    """Change a tensor of a model."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, name: change(tensors[name])}, path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(spoilt, capsys, value):
    spoil(spoilt, "model.norm.weight", lambda found: np.full_like(found, value))
    assert "not finite" in refusal(spoilt, capsys)


@pytest.mark.parametrize("kind", [np.int8, np.int64, ml_dtypes.float8_e4m3fn])
def test_weights_of_a_quantised_model_are_named(spoilt, capsys, kind):
    name = "model.layers.0.mlp.up_proj.weight"
    spoil(spoilt, name, lambda found: found.astype(kind))
    message = refusal(spoilt, capsys)
    assert (
        f"{name} is of unsupported type" in message and "convert the model" in message
    )


def test_a_first_token_beyond_the_vocabulary_is_refused(spoilt, capsys):
    put(spoilt / "tokenizer_config.json", bos_token=None, eos_token=None)
    put(spoilt / "config.json", bos_token_id=10**12)
    message = refusal(spoilt, capsys)
    assert "the token before a text has id 1e+12, but the model has 280 rows" in message


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff" * 99, b"[" * 99_999, bytes(99)]
)
def test_a_file_of_another_kind_is_refused(spoilt, capsys, name, content):
    (spoilt / name).write_bytes(content)
    assert str(spoilt) in refusal(spoilt, capsys)


GIANTS = [
    ({name: 2**size}, words)
    for name in ("num_hidden_layers", "hidden_size", "vocab_size")
    for size, words in ((40, "must be at most"), (20, "the files hold"))
]
MIXTURE = {"model_type": "mixtral", "num_local_experts": 2**20}


@pytest.mark.parametrize(("fields", "words"), [*GIANTS, (MIXTURE, "the files hold")])
def test_a_config_of_a_giant_is_refused_before_it_is_built(
    spoilt, capsys, fields, words
):
    put(spoilt / "config.json", **fields)
    assert words in refusal(spoilt, capsys)


def header(data):
    """The header of a file of tensors, and what follows it."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(fields, rest):
    """A file of tensors with another header."""
    text = as_json(fields)
    return len(text).to_bytes(8, "little") + text + rest


def model_targets(model):
    """What is fuzzed: each file of a model, the others sound."""
    weights = (model / "model.safetensors").read_bytes()
    fields, rest = header(weights)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    words = {"model": tokenizer["model"]}
    rules = {name: part for name, part in tokenizer.items() if name != "model"}

    def load(path):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(model, f"{folder}/tiny")
            shutil.copy(path, copy)
            before = contents(Path(folder))
            allowed(lambda: load_checkpoint(copy))
            assert contents(Path(folder)) == before

    cases = {
        "model.safetensors": damaged(weights)
        | changed(fields).map(lambda found: with_header(found, rest)),
        "tokenizer.json": damaged(as_json(tokenizer))
        | changed(rules).map(lambda found: as_json({**found, **words})),
        "generation_config.json": {"eos_token_id": [1, 2]},
    }
    return [a_file(name, load, case, 1) for name, case in cases.items()]


@pytest.mark.parametrize("a_hundredth", [5, pytest.param(300, marks=pytest.mark.slow)])
def test_a_malformed_model_is_refused_or_read_and_stays(model, a_hundredth):
    for target in model_targets(model):
        assert fuzz(target, a_hundredth) >= a_hundredth


ASKED = [{"role": "user", "content": "in"}]
FOR_EVER = "".join(f"{{% for {name} in range(99999) %}}" for name in "abc")
FOR_EVER += "{% endfor %}" * 3


def layout(folder, template):
    """A model's layout, with another template."""
    (folder / "chat_template.jinja").write_text(template)
    return read_chat_layout(folder)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (FOR_EVER, "took over 2 s, or 256 MiB of memory"),
        ("{% set a = 9**(9**9) %}", "took over 2 s, or 256 MiB of memory"),
        ("{{ 'a' * 10**10 }}", "took over 300 s, or 256 MiB of memory"),
        ("{{ range(99999999) | list | length }}", "took over|refuses"),
        ("{{ 'a' * 65553 }}", r"writes more than 65,552 characters"),
        ("{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "took over"),
        ("{{ raise_exception('a' * 10**7) }}", r"refuses the messages \(a{500}\)$"),
        ("{% include '/etc/passwd' %}", "refuses the messages"),
    ],
)
def test_a_template_that_loops_or_fills_the_memory_is_left(
    spoilt, monkeypatch, template, words
):
    chat: Any = layout(spoilt, "{{ messages[0].content }}" + template)
    # The process that renders is there before its time runs.
    monkeypatch.setattr(encoding, "_MOST_MEMORY", 1 << 28)
    chat.template._running()
    if "2 s" in words:
        monkeypatch.setattr(encoding, "_MOST_SECONDS", 2)
    path = spoilt / "chat_template.jinja"
    with pytest.raises(InputError, match=words) as refused:
        chat.text(ASKED, asks=True)
    assert str(refused.value).startswith(f"{path}: the chat template ")
    assert chat.template._process is None


def test_one_process_renders_all_chats_and_ends_with_the_layout(spoilt, monkeypatch):
    source = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    chat: Any = layout(spoilt, source)
    contents = ["", " a ", "\ud800 half", "é\n" * 99, "0" * 70_000, "x" * 3000]
    chats = [[{"role": "user", "content": text}] for text in contents]
    render = read_fast_tokenizer(spoilt).apply_chat_template
    monkeypatch.setattr(encoding, "_PART_BYTES", 4000)
    monkeypatch.setattr(chat_template, "_ANSWER", 100)
    for asks in (False, True):
        more = {"tokenize": False, "add_generation_prompt": asks}
        assert chat.texts(chats, asks=asks) == [render(one, **more) for one in chats]
    process = chat.template._process
    for one in chats[:3]:
        chat.text(one, asks=True)
    assert chat.template._process is process and process.poll() is None
    del chat
    assert process.poll() is not None


def test_texts_of_a_template_have_one_limit_together(spoilt, monkeypatch):
    chat: Any = layout(spoilt, "{{ messages[0].content }}" + "a" * 1000)
    monkeypatch.setattr(chat_template, "_MOST_TOGETHER", 4007)
    assert len(chat.texts([ASKED] * 3, asks=False)) == 3
    with pytest.raises(InputError, match="writes more than 4,007 characters"):
        chat.texts([ASKED] * 4, asks=False)


def test_nobody_is_left_with_a_template_when_the_command_is_killed(spoilt):
    (spoilt / "chat_template.jinja").write_text(FOR_EVER)
    code = (
        "import sys; from pathlib import Path; from jaxcontam.data import encoding\n"
        "from jaxcontam.models.chat import read_chat_layout\n"
        "encoding._MOST_SECONDS = 1\n"
        "chat = read_chat_layout(Path(sys.argv[1]))\n"
        "print(chat.template._running().pid, flush=True)\n"
        "encoding._MOST_SECONDS = 99\n"
        "chat.text([{'role': 'user', 'content': 'a'}], asks=True)\n"
    )
    words = [sys.executable, "-c", code, str(spoilt)]
    with subprocess.Popen(words, env=OF_HERE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        renders = int(parent.stdout.readline())
        parent.kill()
    handle = os.pidfd_open(renders)
    assert select.select([handle], [], [], 60)[0]
    os.close(handle)


def test_an_audit_of_chats_names_the_file_of_the_template(spoilt, capsys):
    path = spoilt / "tokenizer_config.json"
    put(path, chat_template="{{ messages[0].content }}{{ 'a' * 10**10 }}")
    message = refusal(spoilt, capsys, "--separator", "chat:user")
    assert f"{path}: the chat template took over" in message


def test_a_tensor_that_stands_twice_in_a_header_is_refused(spoilt):
    path = spoilt / "model.safetensors"
    fields, rest = header(path.read_bytes())
    name = next(name for name in fields if "norm" in name)
    escaped = name.replace("n", "\\u006e", 1)
    text = json.dumps(fields)
    twice = f'{text[:-1]},"{escaped}":{json.dumps(fields[name])}}}'.encode()
    # safetensors reads a header behind spaces as well.
    for start in (b"", b" ", b"\r\n\t"):
        data = start + twice
        path.write_bytes(len(data).to_bytes(8, "little") + data + rest)
        with pytest.raises(InputError, match=f"{path}: names '{name}' twice"):
            load_checkpoint(str(spoilt))
    path.write_bytes(with_header(fields, rest))
    load_checkpoint(str(spoilt))


def hard_linked_pipe(path):
    """A second name of a pipe."""
    place = path.with_name("of-the-pipe")
    os.mkfifo(place)
    os.link(place, path)


def link(to):
    return lambda path: path.symlink_to(to)


def sparse(n_bytes):
    return lambda path: (path.touch(), os.truncate(path, n_bytes))


def written(text):
    return lambda path: path.write_text(text)


NO_FILE = "a pipe or a device"
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "README.md")
FILES += ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
FILES += ("tokenizer.model", TENSORS, INDEX, "added_tokens.json", "merges.txt")
FILES += ("additional_chat_templates/a.jinja",)
KINDS = (link("/dev/zero"), os.mkfifo, hard_linked_pipe, link("/proc/kmsg"))
TOO_LARGE = r"bytes \(such a file of a model has at most 67,108,864"
OTHERS = [
    ("config.json", link("config.json"), "no config.json"),
    ("config.json", link("nowhere"), "no config.json"),
    ("config.json", Path.mkdir, "no config.json"),
    *(("config.json", written(text), "not JSON") for text in ("{", "[" * 10**6)),
    ("config.json", written("[" + "[]," * (1 << 22) + "0]"), "values"),
    ("tokenizer.json", link("tokenizer.json"), "no tokenizer"),
    ("tokenizer.json", Path.mkdir, "no tokenizer"),
    ("tokenizer_config.json", written('{"x":' * 10**6), "not JSON"),
    (TENSORS, link("nowhere"), "model.safetensors is missing"),
    (TENSORS, Path.mkdir, "model.safetensors is missing"),
    (
        INDEX,
        written('{"weight_map": {"a": "../../x"}}'),
        "'../../x' is not a plain file",
    ),
    (INDEX, written('{"weight_map": {"a": ".."}}'), "which names others"),
    *(
        (INDEX, written(f'{{"weight_map": {found}}}'), "not an index of weights")
        for found in ("[]", "null", '{"a": 3}')
    ),
]
CASES = [
    *((name, kind, NO_FILE) for name in FILES for kind in KINDS),
    *(
        (name, sparse(size), TOO_LARGE)
        for name in FILES
        if name not in (TENSORS, "README.md")
        for size in ((64 << 20) + 1, 1 << 40)
    ),
    *OTHERS,
]


@pytest.mark.parametrize(("name", "make", "words"), CASES)
def test_a_file_that_is_none_of_a_models_is_refused_at_once(spoilt, name, make, words):
    path = spoilt / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(InputError, match=words) as refused, confined():
        jc.load(str(spoilt))
    assert str(spoilt) in str(refused.value)
    assert "\n" not in str(refused.value)


CLASS = {"tokenizer_class": "GPT2Tokenizer"}


@pytest.mark.parametrize(
    ("name", "fields", "honest"),
    [
        *(
            (f"{stem}.json", {field: [away]}, {field: [f"{stem}.json"]})
            for stem, field in (
                ("tokenizer_config", "fast_tokenizer_files"),
                ("config", "configuration_files"),
            )
            for away in [f"{stem}.9.json/../../../dev/zero"]
        ),
        *(
            (
                "tokenizer_config.json",
                {**CLASS, "vocab": away, "merges": away},
                {**CLASS, "vocab": {"a/b": 0}, "merges": ["a /b"]},
            )
            for away in ("/dev/zero", "../zero")
        ),
    ],
)
def test_a_file_that_names_one_of_another_folder_is_refused(
    spoilt, name, fields, honest
):
    path = spoilt / name
    before = path.read_text()
    put(path, **fields)
    with pytest.raises(InputError, match="must name files in its folder"):
        read_fast_tokenizer(spoilt)
    path.write_text(before)
    put(path, **honest)
    model_files.check_tokenizer_files(spoilt)


def test_links_of_a_hub_snapshot_are_followed(model, tmp_path):
    root = tmp_path / "models--a--b"
    (root / "blobs").mkdir(parents=True)
    snapshot = root / "snapshots/0123"
    snapshot.mkdir(parents=True)
    for i, path in enumerate(sorted(model.iterdir())):
        shutil.copy(path, root / f"blobs/{i}")
        (snapshot / path.name).symlink_to(f"../../blobs/{i}")
    linked = load_checkpoint(str(snapshot))
    assert linked.fingerprint == load_checkpoint(str(model)).fingerprint


@pytest.mark.skipif(os.geteuid() == 0, reason="root lists any folder")
@pytest.mark.parametrize("name", [".", model_files.TEMPLATES])
def test_a_folder_that_cannot_be_listed_is_refused(spoilt, name):
    (spoilt / name).mkdir(exist_ok=True)
    (spoilt / name).chmod(0o311)
    try:
        with pytest.raises(InputError, match="its files cannot be listed"):
            model_files.check_model_folder(spoilt)
    finally:
        (spoilt / name).chmod(0o755)


def test_all_that_read_a_model_refuse_the_same_files(spoilt, capsys):
    os.mkfifo(spoilt / "vocab.txt")
    readers = [StaticEmbeddings.load, Bleurt.load, read_local_tokenizer]
    for read in (*readers, read_fast_tokenizer):
        with pytest.raises(InputError, match=NO_FILE):
            read(spoilt)
    assert main(["doctor", str(spoilt)]) == 2
    assert NO_FILE in capsys.readouterr().out


def test_the_card_of_a_model_is_read_no_further_than_its_beginning(tmp_path):
    files = types.SimpleNamespace(folder=tmp_path)
    model: Any = types.SimpleNamespace(name="m", checkpoint=files)
    card = tmp_path / "README.md"
    card.symlink_to("/dev/zero")
    assert tuning_notes(model) == ()
    card.unlink()
    card.write_text("é" * 199_000 + " tuned with GRPO ")
    os.truncate(card, 1 << 40)
    assert "'GRPO' in its card" in tuning_notes(model)[0]


@pytest.fixture
def limited(spoilt, monkeypatch):
    """A model's folder, where few tokens are many and no library is to read them."""
    monkeypatch.setattr(model_files, "MOST_ADDED", 64)
    monkeypatch.setattr(model_files, "MOST_TOKENS", 256)
    monkeypatch.setattr("transformers.AutoTokenizer", None)
    return spoilt


NAMES = {f"t{i}": i for i in range(999)}
ADDED = {str(i): {"content": "a"} for i in range(99)}


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("added_tokens.json", dict([*NAMES.items()][:99]), "added tokens"),
        ("tokenizer_config.json", {"added_tokens_decoder": ADDED}, "added tokens"),
        (
            "special_tokens_map.json",
            {"additional_special_tokens": [*NAMES][:99]},
            "added tokens",
        ),
        ("vocab.json", NAMES, "of ':'"),
        ("tokenizer.json", {"added_tokens": [{"id": 1}] * 99}, "added tokens"),
        ("tokenizer.json", {"vocab": NAMES}, "of ':'"),
        ("tokenizer.json", {"vocab": [["a", 1]] * 999}, r"of '\['"),
        ("tokenizer.json", {"merges": ["a b"] * 1999}, "of ','"),
    ],
)
def test_tokens_are_counted_before_a_library_reads_them(limited, name, fields, words):
    (limited / name).write_text(json.dumps(fields))
    if name == "tokenizer.json":
        (limited / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=f"{name}: [0-9,]+ {words}"):
        read_fast_tokenizer(limited)


def test_lines_of_a_vocabulary_are_counted_and_those_of_an_honest_one_allowed(limited):
    for name, most in (("vocab.txt", 512), ("merges.txt", 512), ("a.model", 1024)):
        (limited / name).write_text("a\n" * (most + 1))
        with pytest.raises(InputError, match=f"{name}: {most + 1:,} lines"):
            model_files.check_tokenizer_files(limited)
        (limited / name).write_text("a\n" * most)
        model_files.check_tokenizer_files(limited)
