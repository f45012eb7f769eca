"""Folders of models that strangers made: one line, little time and memory, no part."""

import json
import os
import select
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import jaxcontam as jc
from jaxcontam.cli.main import main
from jaxcontam.data import encoding, model_files
from jaxcontam.errors import InputError
from jaxcontam.models import chat_template
from jaxcontam.models.chat import read_chat_layout
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    read_fast_tokenizer,
)
from jaxcontam.orders.chat_turns import tuning_notes
from jaxcontam.overlap.nearest import StaticEmbeddings
from jaxcontam.replication.bleurt import Bleurt
from jaxcontam.scoring.remote import read_local_tokenizer
from tests.faults.folders import confined, contents, said
from tests.faults.test_large_files import ROOT
from tests.faults.test_model_faults import header, with_header

pytestmark = pytest.mark.unoptimised

ASKED = [{"role": "user", "content": "in"}]
FOR_EVER = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


def layout(folder, template):
    """A model's layout, with another template."""
    (folder / "chat_template.jinja").write_text(template)
    return read_chat_layout(folder)


def running(chat):
    """The process that renders a layout's template."""
    return chat.template._process


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
    assert running(chat) is None


def test_one_process_renders_all_chats_and_ends_with_the_layout(spoilt, monkeypatch):
    source = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    chat = layout(spoilt, source)
    contents = ["", " a ", "\ud800 half", "é\n" * 99, "0" * 70_000, "x" * 3000]
    chats = [[{"role": "user", "content": text}] for text in contents]
    tokenizer = read_fast_tokenizer(spoilt)
    monkeypatch.setattr(encoding, "_PART_BYTES", 4000)
    monkeypatch.setattr(chat_template, "_ANSWER", 100)
    for asks in (False, True):
        assert chat.texts(chats, asks=asks) == [
            tokenizer.apply_chat_template(
                one, tokenize=False, add_generation_prompt=asks
            )
            for one in chats
        ]
    process: Any = running(chat)
    for one in chats[:3]:
        chat.text(one, asks=True)
    assert running(chat) is process and process.poll() is None
    del chat
    assert process.poll() is not None


def test_texts_of_a_template_have_one_limit_together(spoilt, monkeypatch):
    chat = layout(spoilt, "{{ messages[0].content }}" + "a" * 1000)
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
    with subprocess.Popen(
        [sys.executable, "-c", code, str(spoilt)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        renders = int(parent.stdout.readline())
        parent.kill()
    handle = os.pidfd_open(renders)
    assert select.select([handle], [], [], 60)[0]
    os.close(handle)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_an_audit_of_chats_names_the_file_of_the_template(spoilt, capsys, name):
    template = "{{ messages[0].content }}{{ 'a' * 10**10 }}"
    path = spoilt / name
    if name.endswith(".jinja"):
        path.write_text(template)
    else:
        fields = json.loads(path.read_text())
        path.write_text(json.dumps({**fields, "chat_template": template}))
    out = spoilt.parent / "out"
    words = ["audit", spoilt, spoilt.parent / "b.txt", "--tests", "reversal"]
    words += ["--chat-template", "user", "--out", out, "--no-store"]
    assert f"{path}: the chat template took over" in said(words, capsys)
    assert contents(out) == {}


def test_a_tensor_that_stands_twice_in_a_header_is_refused(spoilt, capsys):
    path = spoilt / "model.safetensors"
    fields, rest = header(path.read_bytes())
    name = next(name for name in fields if "norm" in name)
    text = json.dumps(fields)
    escaped = name.replace("n", "\\u006e", 1)
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
FILES = ("config.json", "generation_config.json", "tokenizer.json", "README.md")
FILES += ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
FILES += ("tokenizer.model", "model.safetensors", "model.safetensors.index.json")
FILES += ("added_tokens.json", "merges.txt", "additional_chat_templates/a.jinja")
KINDS = {
    "zeros": link("/dev/zero"),
    "pipe": os.mkfifo,
    "second name of a pipe": hard_linked_pipe,
    "kernel": link("/proc/kmsg"),
}
DEVICES = [(name, KINDS[kind], NO_FILE) for name in FILES for kind in KINDS]
SIZES = [
    (name, sparse(size), r"bytes \(such a file of a model has at most 67,108,864")
    for name in FILES
    if name not in ("model.safetensors", "README.md")
    for size in ((64 << 20) + 1, 1 << 40)
]
OTHERS = [
    ("config.json", link("config.json"), "no config.json"),
    ("config.json", link("nowhere"), "no config.json"),
    ("config.json", Path.mkdir, "no config.json"),
    ("config.json", written("[" * 10**6), "not JSON"),
    ("config.json", written("[" + "[]," * (1 << 22) + "0]"), "values"),
    ("tokenizer.json", link("tokenizer.json"), "no tokenizer"),
    ("tokenizer.json", Path.mkdir, "no tokenizer"),
    ("tokenizer_config.json", written('{"x":' * 10**6), "not JSON"),
    ("model.safetensors", link("nowhere"), "model.safetensors is missing"),
    ("model.safetensors", Path.mkdir, "model.safetensors is missing"),
    (
        "model.safetensors.index.json",
        written('{"weight_map": {"a": "../../x"}}'),
        "'../../x' is no plain file name",
    ),
    (
        "model.safetensors.index.json",
        written('{"weight_map": {"a": ".."}}'),
        r"\.\. is missing",
    ),
]
CASES = [*DEVICES, *SIZES, *OTHERS]


@pytest.mark.parametrize(
    ("name", "make", "words"),
    CASES,
    ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(CASES)],
)
def test_a_file_that_is_none_of_a_models_is_refused_at_once(spoilt, name, make, words):
    path = spoilt / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(InputError, match=words) as refused, confined():
        jc.load(str(spoilt))
    assert str(spoilt) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("tokenizer_config.json", "fast_tokenizer_files"),
        ("config.json", "configuration_files"),
    ],
)
def test_a_file_that_names_one_of_another_folder_is_refused(spoilt, name, field):
    path = spoilt / name
    fields = json.loads(path.read_text())
    stem = name.removesuffix(".json")
    names = [f"{stem}.9.json/../../../dev/zero"]
    path.write_text(json.dumps({**fields, field: names}))
    with pytest.raises(InputError, match="must name files beside it"):
        read_fast_tokenizer(spoilt)
    path.write_text(json.dumps({**fields, field: [name]}))
    read_fast_tokenizer(spoilt)


@pytest.mark.parametrize("place", ["/dev/zero", "../zero"])
def test_a_vocabulary_that_is_the_name_of_a_file_elsewhere_is_refused(spoilt, place):
    path = spoilt / "tokenizer_config.json"
    fields = {"tokenizer_class": "GPT2Tokenizer", "vocab": place, "merges": place}
    honest = {**fields, "vocab": {"a/b": 0}, "merges": ["a /b"]}
    path.write_text(json.dumps(honest))
    model_files.check_tokenizer_files(spoilt)
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"vocab holds .* must name files beside it"):
        read_fast_tokenizer(spoilt)


def test_doctor_names_what_is_wrong_with_a_folder(spoilt, capsys):
    os.mkfifo(spoilt / "README.md")
    assert main(["doctor", str(spoilt)]) == 2
    assert NO_FILE in capsys.readouterr().out


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


def test_readers_of_other_kinds_of_model_refuse_the_same_files(spoilt):
    os.mkfifo(spoilt / "vocab.txt")
    readers = [StaticEmbeddings.load, Bleurt.load, read_local_tokenizer]
    for read in (*readers, read_fast_tokenizer):
        with pytest.raises(InputError, match=NO_FILE):
            read(spoilt)


def test_the_card_of_a_model_is_read_no_further_than_its_beginning(tmp_path):
    model: Any = types.SimpleNamespace(
        name="m", checkpoint=types.SimpleNamespace(folder=tmp_path)
    )
    (tmp_path / "README.md").symlink_to("/dev/zero")
    assert tuning_notes(model) == ()
    (tmp_path / "README.md").unlink()
    card = "é" * 199_000 + " tuned with GRPO "
    (tmp_path / "README.md").write_text(card)
    with (tmp_path / "README.md").open("r+b") as file:
        file.truncate(1 << 40)
    assert "'GRPO' in its card" in tuning_notes(model)[0]


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("added_tokens.json", {f"t{i}": i for i in range(99)}, "added tokens"),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {str(i): {"content": "a"} for i in range(99)}},
            "added tokens",
        ),
        (
            "special_tokens_map.json",
            {"additional_special_tokens": [f"t{i}" for i in range(99)]},
            "added tokens",
        ),
        ("vocab.json", {f"t{i}": i for i in range(999)}, "of ':'"),
        ("tokenizer.json", {"added_tokens": [{"id": 1}] * 99}, "added tokens"),
        ("tokenizer.json", {"vocab": {f"t{i}": i for i in range(999)}}, "of ':'"),
        ("tokenizer.json", {"vocab": [["a", 1]] * 999}, r"of '\['"),
        ("tokenizer.json", {"merges": ["a b"] * 1999}, "of ','"),
    ],
)
def test_tokens_are_counted_before_a_library_reads_them(
    spoilt, monkeypatch, name, fields, words
):
    monkeypatch.setattr(model_files, "MOST_ADDED", 64)
    monkeypatch.setattr(model_files, "MOST_TOKENS", 256)
    (spoilt / name).write_text(json.dumps(fields))
    monkeypatch.setattr("transformers.AutoTokenizer", None)
    if name == "tokenizer.json":
        (spoilt / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=f"{name}: [0-9,]+ {words}"):
        read_fast_tokenizer(spoilt)


def test_lines_of_a_vocabulary_are_counted_and_those_of_an_honest_one_allowed(
    spoilt, monkeypatch
):
    monkeypatch.setattr(model_files, "MOST_ADDED", 64)
    monkeypatch.setattr(model_files, "MOST_TOKENS", 256)
    monkeypatch.setattr("transformers.AutoTokenizer", None)
    for name, most in (("vocab.txt", 512), ("merges.txt", 512), ("a.model", 1024)):
        (spoilt / name).write_text("a\n" * (most + 1))
        with pytest.raises(InputError, match=f"{name}: {most + 1:,} lines"):
            model_files.check_tokenizer_files(spoilt)
        (spoilt / name).write_text("a\n" * most)
        model_files.check_tokenizer_files(spoilt)
