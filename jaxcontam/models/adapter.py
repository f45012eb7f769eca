"""LoRA adapters: changes of a base model's weights, added while these are read.

Hu et al., arXiv:2106.09685, in the files of PEFT: W + B A alpha / r.
"""

import dataclasses
import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.files import read_json_object
from jaxcontam.data.model_files import ADAPTER
from jaxcontam.errors import InputError
from jaxcontam.models.weights import open_tensors

WEIGHTS = "adapter_model.safetensors"
_PREFIX, _DOWN, _UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_MODULE = re.compile(r"[\w.]+")
_MERGE = "merge it with PEFT (merge_and_unload, save_pretrained) and name that folder"


@dataclasses.dataclass(frozen=True, slots=True)
class Adapter:
    """A folder with an adapter; `base` is the word for the model that it changes."""

    folder: Path
    base: str
    fields: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """Files that the change follows from."""
        return [self.folder / ADAPTER, self.folder / WEIGHTS]

    @property
    def is_turned(self) -> bool:
        """True if the base's kernels are [inputs, outputs]."""
        return self.fields.get("fan_in_fan_out") is True

    def scale(self, name: str) -> float:
        """Factor of a weight's change."""
        module = name.removesuffix(".weight")
        rank, alpha = (
            next(
                (x for key, x in own.items() if f".{module}".endswith(f".{key}")),
                self.fields[field],
            )
            for field, own in (
                ("r", self.fields.get("rank_pattern") or {}),
                ("lora_alpha", self.fields.get("alpha_pattern") or {}),
            )
        )
        root = self.fields.get("use_rslora") is True
        return alpha / (math.sqrt(rank) if root else rank)


def read_adapter(folder: Path) -> Adapter:
    """Read the adapter of a folder that holds one and no model.

    Raises:
        InputError: If the folder holds both, or the adapter is no plain LoRA.
    """
    path = folder / ADAPTER
    if found := sorted(one.name for one in folder.glob("model*.safetensors")):
        raise InputError(
            f"{folder}: holds a model ({found[0]}) and an adapter ({ADAPTER})",
            hint="move the one that you do not mean to another folder",
        )
    fields = read_json_object(path)
    base = fields.get("base_model_name_or_path")
    is_plain = fields.get("peft_type") == "LORA" and not (
        fields.get("use_dora") or fields.get("bias") not in (None, "none")
    )
    patterns = [fields.get(f"{name}_pattern") or {} for name in ("rank", "alpha")]
    numbers = [fields.get("r"), fields.get("lora_alpha")]
    for own in patterns:
        # Other keys are regular expressions.
        is_plain &= isinstance(own, dict) and all(map(_MODULE.fullmatch, own))
        numbers += own.values() if isinstance(own, dict) else ()
    if not is_plain or not all(isinstance(x, int | float) and x > 0 for x in numbers):
        raise InputError(f"{path}: not a plain LoRA adapter", hint=_MERGE)
    if not isinstance(base, str) or not base:
        raise InputError(f"{path}: names no base model", hint=_MERGE)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder}: {WEIGHTS} is missing")
    return Adapter(folder, base, fields)


class AdaptedTensors:
    """Tensors of a base model with an adapter's changes."""

    def __init__(self, source: Any, adapter: Adapter):
        """Hold both; the adapter is read once the base's names are asked for."""
        self._source, self._adapter = source, adapter
        self.most_weights = source.most_weights
        self._whole: dict[str, np.ndarray] = {}
        self._parts: dict[str, dict[str, np.ndarray]] = {}

    def names(self, wanted: Collection[str]) -> list[str]:
        """Names of the base's tensors.

        Raises:
            InputError: If the adapter changes what the base does not have.
        """
        names = self._source.names(wanted)
        with open_tensors(self._adapter.folder / WEIGHTS) as handle:
            held = {name: handle.get_tensor(name) for name in [*handle.keys()]}
        for name, values in held.items():
            module = name.removeprefix(_PREFIX)
            end = next((end for end in (_DOWN, _UP) if module.endswith(end)), "")
            weight = module.removesuffix(end) + ".weight" if end else module
            # Files of some families leave out the first part of each name.
            known = {weight, weight.partition(".")[2]} & {*names}
            if not known:
                raise self._other_model(f"changes {weight}, which is not there")
            (weight,) = known
            if end:
                self._parts.setdefault(weight, {})[end] = values.astype(np.float32)
            else:
                self._whole[weight] = values
        for name in {*self._whole, *self._parts}:
            if (found := self._shape_of_change(name)) != self._source.shape(name):
                raise self._other_model(f"a change of {name} has shape {found}")
        return names

    def _shape_of_change(self, name: str) -> tuple[int, ...]:
        if name in self._whole:
            return self._whole[name].shape
        down, up = (self._parts[name].get(end, np.empty(0)) for end in (_DOWN, _UP))
        if down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
            return (*up.shape, *down.shape)
        shape = up.shape[0], down.shape[1]
        return shape[::-1] if self._adapter.is_turned else shape

    def _other_model(self, what: str) -> InputError:
        path = self._adapter.folder / WEIGHTS
        hint = f"check that {self._adapter.base} is its base; or {_MERGE}"
        return InputError(f"{path}: {what}", hint=hint)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the base's tensor."""
        return self._source.shape(name)

    def read(self, name: str, cut: tuple[slice, ...]) -> np.ndarray:
        """A part of a tensor."""
        if name in self._whole:
            return self._whole[name][cut]
        base = self._source.read(name, cut)
        if name not in self._parts:
            return base
        parts = self._parts[name]
        change = parts[_UP] @ parts[_DOWN] * self._adapter.scale(name)
        if self._adapter.is_turned:
            change = change.T
        return base.astype(np.float32) + change[cut]
