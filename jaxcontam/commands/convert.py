"""`jaxcontam convert`: pickled weights to safetensors, in a process of its own."""

import dataclasses
import json
import shutil
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.errors import InputError, first_line
from jaxcontam.models.hub import model_directory
from jaxcontam.models.torch_extra import need_torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convert:
    """Write pickled weights as safetensors; code that a pickle may hold never runs.

    Examples:
        jaxcontam convert MODEL_DIR NEW_DIR
        # from the hub
        jaxcontam convert yonatano/contam-1.4b contam-1.4b
    """

    model: Positional[str]
    """Folder with pytorch_model.bin, or name on the hub."""
    out: Positional[Path]
    """New folder, to be named in place of MODEL; config and tokenizer go there, too."""

    def run(self) -> None:
        """Read pickles with nothing but tensors allowed; the other files come last."""
        if (self.out / "config.json").exists():
            raise InputError(f"{self.out}: holds a model", hint="name a new folder")
        need_torch("reading pickled weights")
        import torch
        from safetensors.torch import save_file

        source = model_directory(self.model, pickles=True)
        places: dict[str, str] = {}
        for path in sorted(source.glob("pytorch_model*.bin")):
            try:
                found = torch.load(path, map_location="cpu", weights_only=True)
                # Copies: a tied head shares memory, which safetensors refuses.
                tensors = {k: v.clone().contiguous() for k, v in found.items()}
            except Exception as e:  # torch raises many types for a bad file
                words = "more than tensors, or damaged, so it is not read"
                raise InputError(f"{path}: {words} ({first_line(e)})") from e
            self.out.mkdir(parents=True, exist_ok=True)
            name = f"{path.stem}.safetensors"
            save_file(tensors, self.out / name, metadata={"format": "pt"})
            places |= dict.fromkeys(tensors, name)
        if not places:
            raise InputError(f"{source}: no pytorch_model.bin", hint="name its folder")
        index = json.dumps({"metadata": {}, "weight_map": places})
        (self.out / "model.safetensors.index.json").write_text(index)
        others = shutil.ignore_patterns("*.bin*", "*.safetensors*")
        shutil.copytree(source, self.out, ignore=others, dirs_exist_ok=True)
        print(f"{self.out}: {len(places):,} tensors as safetensors")
