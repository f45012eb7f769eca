"""What a dry run found, and its form as JSON."""

import dataclasses
from typing import Any

from jaxcontam.scoring.mesh_shape import MeshShape
from train.dry_run.collectives import Collective
from train.dry_run.compiled import CompiledStep
from train.dry_run.hardware import Machine
from train.dry_run.memory import StepMemory
from train.dry_run.step_time import StepTime
from train.presets import PRESETS, Preset


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a dry run found.

    Attributes:
        preset: As it would be trained, micro-batches included.
        machine: What on.
        shape: Of the mesh.
        usable: Bytes of a chip's memory that a step may take.
        memory: By the formula, for this hardware.
        cpu_memory: By the formula, for the CPU whose compiler was asked.
        compiled: What compilers say; none if none was asked.
        sent: Collectives of a step.
        time: Of a step.
        tokens: To train on.
        price: Of a chip and hour, or None.
    """

    preset: Preset
    machine: Machine
    shape: MeshShape
    usable: int
    memory: StepMemory
    cpu_memory: StepMemory
    compiled: tuple[CompiledStep, ...]
    sent: tuple[Collective, ...]
    time: StepTime
    tokens: float
    price: float | None

    @property
    def needed(self) -> int:
        """Bytes: what the hardware's own compiler says, else the formula."""
        for one in self.compiled:
            if one.compiler == "tpu" and one.peak_bytes is not None:
                return one.peak_bytes
        return self.memory.total

    @property
    def fits(self) -> bool:
        """Whether a step leaves the reserve free, and no compiler refuses it."""
        refused = any(one.refused for one in self.compiled)
        return not refused and self.needed <= self.usable

    def hours(self, step_seconds: float) -> float:
        """Of the whole run."""
        return self.tokens / self.preset.step_tokens * step_seconds / 3600


def train_flags(answer: Answer) -> tuple[str, ...]:
    """Flags with which `train.pretrain` trains what was reckoned here."""
    preset, shape = answer.preset, answer.shape
    flags = [
        "--preset",
        preset.name,
        "--mesh",
        f"data={shape.data},model={shape.model}",
    ]
    flags += ["--micro-batches", str(preset.compute.n_micro)]
    usual = PRESETS[preset.name]
    for flag, now, before in (
        ("--batch-rows", preset.batch_rows, usual.batch_rows),
        ("--row-tokens", preset.context, usual.context),
        ("--dtype", preset.compute.dtype, usual.compute.dtype),
        ("--remat", preset.compute.remat, usual.compute.remat),
    ):
        if now != before:
            flags += [flag, str(now)]
    return tuple(flags)


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON values; bytes, seconds and hours."""
    on, time = answer.machine, answer.time
    chip_hours = [on.n_chips * answer.hours(s) for s in (time.best, time.worst)]
    return {
        "preset": answer.preset.name,
        "hardware": on.name,
        "chip": on.chip.name,
        "n_chips": on.n_chips,
        "mesh": {"data": answer.shape.data, "model": answer.shape.model},
        "batch_rows": answer.preset.batch_rows,
        "row_tokens": answer.preset.context,
        "compute": dataclasses.asdict(answer.preset.compute),
        "fits": answer.fits,
        "train_flags": train_flags(answer),
        "usable_bytes": answer.usable,
        "needed_bytes": answer.needed,
        "memory": dataclasses.asdict(answer.memory),
        "cpu_formula_bytes": answer.cpu_memory.total,
        "compiled": [dataclasses.asdict(one) for one in answer.compiled],
        "collectives": [dataclasses.asdict(one) for one in answer.sent],
        "step_seconds": {
            "products": time.compute,
            "memory": time.memory,
            "network": time.network,
            "overlapping": time.best,
            "one_after_another": time.worst,
        },
        "binds": time.binds,
        "mfu_if_products_bind": time.mfu,
        "tokens": answer.tokens,
        "hours": [answer.hours(s) for s in (time.best, time.worst)],
        "chip_hours": chip_hours,
        "cost": None
        if answer.price is None
        else [hours * answer.price for hours in chip_hours],
    }
