"""A checkpoint of a training run as a Hugging Face directory.

Command: `python -m train.export RUN`, or with `--step N` for an earlier checkpoint.
`jaxcontam audit` and transformers read what it writes.
"""

import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxcontam.cli.main import run_module
from jaxcontam.data.files import writing
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import read_fast_tokenizer, save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.reports.report_files import replace_folder
from train.checkpoints import restore_params, saved_steps
from train.run_folder import MODEL_DIR

EXPORTS_DIR = "exports"
TOKENIZER_DIR = "tokenizer"
"""Folder of a run that holds its tokenizer from before the first step."""
INIT_CONFIG_NAME = "init_config.json"
"""config.json of the model that a run started from."""


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
    """Write the weights of a checkpoint with the run's tokenizer; gives the folder."""
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: no such folder", hint="name the folder of a run")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: is not empty", hint="--out names a new folder")
    tokenizer = read_run_tokenizer(run_dir)
    model = run_dir / MODEL_DIR
    if (model / "config.json").is_file() and not saved_steps(run_dir):
        raise InputError(
            f"{run_dir}: no checkpoints",
            hint=f"the run is finished: its model is {model}",
        )
    config, step, decoder = restore_params(run_dir, step)
    fields = run_dir / INIT_CONFIG_NAME
    if out is None:
        out = run_dir / EXPORTS_DIR / f"step-{step}"
    write_model(
        decoder,
        tokenizer,
        out,
        model_type=config.model_type,
        raw_config=json.loads(fields.read_text("utf-8")) if fields.is_file() else None,
    )
    return out


def write_model(
    decoder: Decoder,
    tokenizer,
    folder: Path,
    *,
    model_type: str,
    raw_config: Mapping[str, Any] | None = None,
) -> None:
    """`save_checkpoint`, whole or not at all.

    A model that stands there is replaced when the new one is complete.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with writing(folder):
        save_checkpoint(
            decoder, tokenizer, partial, model_type=model_type, raw_config=raw_config
        )
        replace_folder(partial, folder)


def read_run_tokenizer(run_dir: Path):
    """The transformers tokenizer that a run keeps from before its first step."""
    folder = run_dir / TOKENIZER_DIR
    if not (folder / "tokenizer.json").is_file():
        raise InputError(
            f"{folder}: no tokenizer", hint=f"is {run_dir} the folder of a run?"
        )
    return read_fast_tokenizer(folder)


def main() -> int:
    """Command line of `python -m train.export`."""
    return run_module(Export, "train.export")


if __name__ == "__main__":
    sys.exit(main())
