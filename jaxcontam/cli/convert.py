"""`jaxcontam convert`: pickled weights to safetensors, in a process of its own."""

import contextlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from jaxcontam.cli.flags import Convert
from jaxcontam.data.files import MOST_TEXT, bounded_memory, writing
from jaxcontam.data.model_files import TEMPLATES
from jaxcontam.errors import InputError, first_line
from jaxcontam.models.hub import model_directory, need_torch
from jaxcontam.reports.report_files import part_path, replace_folder, sweep_parts
from jaxcontam.terminal_text import printable

_PICKLES = "pytorch_model*.bin"
# Other weights, and their indices.
_WEIGHTS = (
    *(".bin", ".safetensors", ".pt", ".pth", ".ckpt", ".pkl", ".h5"),
    *(".msgpack", ".onnx", ".gguf", ".npz"),
)
# Bytes of tensors for each byte of their file: T5 has one matrix under four names.
_SHARED = 4
_ZIP = b"PK\x03\x04"


def convert(command: Convert) -> None:
    """Read pickles with nothing but tensors allowed, beside the new folder."""
    # `resolve` raises where links form a loop.
    out = Path(os.path.realpath(command.out))
    if (out / "config.json").exists():
        raise InputError(f"{command.out}: holds a model", hint="name a new folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{command.out}: holds files", hint="name a new folder")
    need_torch("reading pickled weights")
    source = model_directory(command.model, pickles=True)
    pickles = sorted(source.glob(_PICKLES))
    if not pickles:
        raise InputError(f"{source}: no pytorch_model.bin", hint="name its folder")
    others, left_out = _others(source)
    for path in pickles:
        _check_place(source, path)
    with contextlib.ExitStack() as stack, writing(command.out):
        out.parent.mkdir(parents=True, exist_ok=True)
        sweep_parts(out)
        partial = part_path(out)
        partial.mkdir()
        stack.callback(shutil.rmtree, partial, ignore_errors=True)
        places: dict[str, str] = {}
        for path in pickles:
            name = f"{path.stem}.safetensors"
            with bounded_memory(
                path, "check that it is a file of a model, and copy it again"
            ):
                names = _convert(path, partial / name)
            if twice := sorted(places.keys() & set(names)):
                raise InputError(
                    f"{path}: holds {twice[0]!r}, as {places[twice[0]]} does"
                )
            places |= dict.fromkeys(names, name)
        index = json.dumps({"metadata": {}, "weight_map": places})
        (partial / "model.safetensors.index.json").write_text(index)
        for path in others:
            place = partial / path.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(path, place)
        replace_folder(partial, out)
    names = ", ".join(map(printable, left_out))
    without = f"; not copied: {names}" if names else ""
    name = printable(command.out)
    print(f"{name}: {len(places):,} tensors as safetensors{without}")


def _others(source: Path) -> tuple[list[Path], list[str]]:
    """Small files beside the weights, and names of what is left out."""
    copied: list[Path] = []
    left_out: list[str] = []
    paths = sorted(source.iterdir())
    templates = source / TEMPLATES
    if templates.is_dir() and not templates.is_symlink():
        paths += sorted(templates.glob("*.jinja"))
    for path in paths:
        _check_place(source, path)
        if path == templates or {".bin", ".safetensors"} & set(path.suffixes):
            continue
        is_weights = path.suffix in _WEIGHTS
        if path.is_dir() or is_weights or path.stat().st_size > MOST_TEXT:
            left_out.append(path.name)
        else:
            copied.append(path)
    return copied, left_out


def _check_place(source: Path, path: Path) -> None:
    """Refuse a link that leads out of a model's folder, or to no file.

    A snapshot of the hub's cache consists of links into its `blobs`.
    """
    if not path.is_symlink():
        return
    folder, found = (Path(os.path.realpath(one)) for one in (source, path))
    is_blob = (
        folder.parent.name == "snapshots"
        and found.parent == folder.parent.parent / "blobs"
    )
    if not (found.is_file() and (is_blob or found.is_relative_to(folder))):
        raise InputError(
            f"{path}: a link to something other than a file within the folder",
            hint="replace the link with the file, or remove it",
        )


def _convert(path: Path, out: Path) -> list[str]:
    """Write the tensors of one pickle; returns their names."""
    import torch
    from safetensors.torch import save_file

    size = path.stat().st_size
    try:
        is_zip = _is_stored_zip(path, size)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        n_bytes = sum(_tensor_bytes(name, value) for name, value in found.items())
        if n_bytes > _SHARED * size:
            raise ValueError(f"{n_bytes:,} bytes of tensors in {size:,} of a file")
        # Copies: a tied head shares memory, which safetensors refuses.
        tensors = {k: v.clone().contiguous() for k, v in found.items()}
    except MemoryError:
        raise
    except Exception as e:  # torch raises many types for a bad file
        words = "not read: it holds more than tensors, or is damaged"
        raise InputError(f"{path}: {words} ({first_line(e)})") from e
    # safetensors makes its own file, for the owner alone: keep what the umask gives.
    out.touch()
    mode = out.stat().st_mode
    save_file(tensors, out, metadata={"format": "pt"})
    out.chmod(mode)
    return [*tensors]


def _is_stored_zip(path: Path, size: int) -> bool:
    """True if torch reads an archive, whose parts must be as large as the file."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return False
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    is_stored = all(one.compress_type == zipfile.ZIP_STORED for one in members)
    if not is_stored or sum(one.file_size for one in members) > size:
        raise ValueError("an archive that unpacks into more than the file")
    return True


def _tensor_bytes(name: Any, value: Any) -> int:
    """Bytes that a tensor takes as a copy, without making one."""
    import torch

    is_plain = (
        isinstance(name, str)
        and isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
    )
    if not is_plain:
        raise ValueError(f"{str(name)[:100]!r} is not a tensor of numbers")
    return value.numel() * value.element_size()
