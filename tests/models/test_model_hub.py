"""Models by their hub name: what is asked for, and one line for each refusal."""

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import model_directory

NAME = "org/model"


def answer(kind, status):
    request = httpx2.Request("GET", "https://huggingface.co")
    return kind("403\n\nlong words", response=httpx2.Response(status, request=request))


def test_no_code_and_no_pickle_is_asked_for(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **flags: asked.append((name, flags)) or str(tmp_path),
    )
    assert model_directory(NAME) == tmp_path
    ((name, flags),) = asked
    assert name == NAME
    assert flags.pop("revision") is None
    repository = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.model",
        "merges.txt",
        "modeling_own.py",
        "pytorch_model.bin",
        "consolidated.safetensors",
        "onnx/config.json",
    ]
    kept = huggingface_hub.utils.filter_repo_objects(repository, **flags)
    assert list(kept) == repository[:5]


def test_a_revision_pins_a_model(monkeypatch, tmp_path):
    def download(name, *, revision, **flags):
        if revision != "v1":
            raise answer(errors.RevisionNotFoundError, 404)
        return str(tmp_path / name / revision)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert model_directory(f"{NAME}@v1") == tmp_path / NAME / "v1"
    with pytest.raises(InputError, match="org/model: the hub has no revision 'v2'"):
        model_directory(f"{NAME}@v2")


@pytest.mark.parametrize(
    ("failure", "message", "hint"),
    [
        (
            answer(errors.GatedRepoError, 403),
            "gives it only to those who accepted its terms",
            "https://huggingface.co/org/model",
        ),
        (
            answer(errors.RepositoryNotFoundError, 404),
            "no such model on the hub, or a private one",
            "hf auth login",
        ),
        (
            errors.LocalEntryNotFoundError("no network"),
            "the hub cannot be reached",
            "hf download org/model --local-dir DIR",
        ),
        (ConnectionError("broken\npipe"), r"not on the hub \(broken\)", ""),
        (ValueError(), r"not on the hub \(ValueError\)", ""),
    ],
)
def test_refusal_is_one_line_with_a_way_out(monkeypatch, failure, message, hint):
    def fail(name, **flags):
        raise failure

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(InputError, match=message) as caught:
        model_directory(NAME)
    assert str(caught.value).startswith(f"{NAME}: ")
    assert "\n" not in str(caught.value)
    assert hint in caught.value.hint
