"""A checkpoint of a training run as a Hugging Face directory.

Command: `python -m train.export RUN`, or with `--step N` for an earlier checkpoint. What
it writes is read by `jaxcontam audit` and by transformers.
"""

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Annotated

import tyro
from flax import nnx

from jaxcontam.cli import parse, run_command
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    model_type_of,
    quiet_transformers,
    save_checkpoint,
)
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder
from train.checkpoints import restore_params, saved_steps

EXPORTS_DIR = "exports"
TOKENIZER_DIR = "tokenizer"
"""Folder of a run that holds its tokenizer from before the first step."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Write a checkpoint of a training run as a Hugging Face directory."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run: what was `--out` of train.pretrain."""
    step: int | None = None
    """Training steps that the checkpoint has done (default: the last one saved)."""
    out: Path | None = None
    """Folder for the model (default: RUN/exports/step-N)."""

    def run(self) -> Path:
        """Export, print where the model stands."""
        out = export(self.run_dir, step=self.step, out=self.out)
        print(f"model: {out}")
        return out


def export(run_dir: Path, *, step: int | None = None, out: Path | None = None) -> Path:
    """Write the weights of a checkpoint with the run's tokenizer.

    Args:
        run_dir: Folder of the run, finished or not.
        step: Of the checkpoint; None takes the last one.
        out: Folder; an exported model that stands there is replaced, anything else is
            kept.

    Returns:
        The folder of the model.

    Raises:
        InputError: If there is no such run or checkpoint, or `out` holds something else.
    """
    step = _chosen(run_dir, step)
    tokenizer = _read_tokenizer(run_dir)
    out = run_dir / EXPORTS_DIR / f"step-{step}" if out is None else out
    if out.exists() and not (out / "config.json").is_file():
        raise InputError(f"{out}: is no model", hint="name a new folder with --out")
    preset, params = restore_params(run_dir, step)
    write_model(decoder_with(preset, params), tokenizer, out)
    return out


def decoder_with(config: DecoderConfig, params: nnx.State) -> Decoder:
    """A decoder of a shape with weights from elsewhere; draws none of its own."""
    empty = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    return nnx.merge(nnx.split(empty)[0], params)


def write_model(decoder: Decoder, tokenizer, folder: Path) -> None:
    """`save_checkpoint`, whole or not at all.

    A model that stands there is replaced when the new one is complete.

    Args:
        decoder: The model.
        tokenizer: A transformers fast tokenizer.
        folder: Of the model; its parents are created.

    Raises:
        InputError: If no layout that is written can hold a model of this shape.
    """
    try:
        model_type = model_type_of(decoder.config)
    except ValueError as e:
        raise InputError(
            f"{folder}: no Hugging Face layout that is written here fits this model",
            hint="models of the shapes of LLaMA and GPT-2 can be written",
        ) from e
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    save_checkpoint(decoder, tokenizer, partial, model_type=model_type)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _chosen(run_dir: Path, step: int | None) -> int:
    """The step of the checkpoint to export."""
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: no such folder", hint="name the folder of a run")
    steps = saved_steps(run_dir)
    if not steps:
        raise InputError(
            f"{run_dir}: no checkpoints", hint="train.pretrain saves them as it runs"
        )
    if step is None:
        return steps[-1]
    if step not in steps:
        near = sorted(sorted(steps, key=lambda one: abs(one - step))[:5])
        raise InputError(
            f"{run_dir}: no checkpoint of step {step}",
            hint=f"nearest steps: {', '.join(map(str, near))}",
        )
    return step


def _read_tokenizer(run_dir: Path):
    folder = run_dir / TOKENIZER_DIR
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no tokenizer", hint="the folder of a run keeps the tokenizer"
        )
    quiet_transformers()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )


def main() -> int:
    """Command line of `python -m train.export`."""
    return run_command(
        lambda: parse(Export, sys.argv[1:], prog="python -m train.export").run(),
        name="train.export",
    )


if __name__ == "__main__":
    sys.exit(main())
