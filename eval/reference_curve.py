"""The effect of planted sets by duplication count, as data of the package.

Question: how large is the effect of an order test on models that saw a set a known
number of times?
Command: `python -m eval.power`, then `python -m eval.reference_curve`. Hardware: any,
seconds. It writes jaxcontam/report/reference_curve.json, which is committed.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.power.__main__ import RECORDS_DIR
from eval.power.model import ModelRecord, record_of
from eval.study import grouped, read_fields, run_study, write_json
from jaxcontam.errors import InputError
from jaxcontam.report import reference
from jaxcontam.report.reference import CURVE_NAME, ReferenceCurve

METHODS = ("stratified", "adjacency")
"""Tests whose effect is quoted beside `no evidence`."""
_CURVE_FILE = Path(reference.__file__).with_name(CURVE_NAME)
_QUANTILES = (0.5, 0.1, 0.9)
_STUDY_NAME = "power.json"
_POPULATIONS = ("ladder", "long", "quickstart")
_SETTING = (
    "Small models; half or more of their training text was planted, as contiguous "
    "blocks in one order: an easy setting. Large models at equal copies will differ."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCurveCommand:
    """Make the reference curve from the records of `eval.power`."""

    study: Path = Path("runs/power")
    """Folder of a finished `eval.power`."""
    out: Path = _CURVE_FILE
    """The file to write."""

    def run(self) -> dict:
        """Read, compute, write; returns what was written."""
        study, records = _read_study(self.study)
        curves = curves_of(records)
        document = {
            "command": [
                " ".join(["python", "-m", *study["command"]]),
                "python -m eval.reference_curve",
            ],
            "setting": _SETTING,
            "cpu": study["cpu"],
            "versions": study["versions"],
            "corpus_digest": study["corpus_digest"],
            "curves": [dataclasses.asdict(curve) for curve in curves],
        }
        write_json(self.out, document)
        for curve in curves:
            print(f"{curve.population}, {curve.method}, {curve.n_models} models")
            for copies, *values in zip(
                curve.copies, curve.median, curve.low, curve.high, strict=True
            ):
                median, low, high = (f"{value:.3f}" for value in values)
                print(f"  {copies:>3} copies: {median} ({low} to {high}) nats")
        return document


def _read_study(folder: Path) -> tuple[dict[str, Any], list[ModelRecord]]:
    """power.json and the very models that it names, of the populations quoted.

    Raises:
        InputError: If the study or one of its populations is not there.
    """
    hint = f"run python -m eval.power --only {' '.join(_POPULATIONS)}"
    try:
        study = json.loads((folder / _STUDY_NAME).read_text(encoding="utf-8"))
        seeds = {about["name"]: about["seeds"] for about in study["populations"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(f"{folder}: no finished study", hint=hint) from e
    if missing := [name for name in _POPULATIONS if name not in seeds]:
        raise InputError(f"{folder}: no models of {', '.join(missing)}", hint=hint)
    records = []
    for name in _POPULATIONS:
        for seed in seeds[name]:
            path = folder / RECORDS_DIR / f"{name}-{seed}.json"
            fields = read_fields(path)
            if fields is None:
                raise InputError(f"{path}: no record of a model", hint=hint)
            records.append(record_of(fields))
    return study, records


def curves_of(records: Sequence[ModelRecord]) -> list[ReferenceCurve]:
    """Quantiles over models of every population and test that has effects."""
    curves = []
    for design, found in grouped(records, lambda record: record.design).items():
        for method in METHODS:
            effects: dict[int, list[float]] = {}
            for record in found:
                for row in record.rows:
                    if row.test == method and row.effect is not None:
                        effects.setdefault(row.copies, []).append(row.effect)
            if not effects:
                continue
            copies = sorted(effects)
            median, low, high = (
                tuple(round(float(np.quantile(effects[n], q)), 5) for n in copies)
                for q in _QUANTILES
            )
            shares = [record.n_canary_tokens / record.n_tokens for record in found]
            curves.append(
                ReferenceCurve(
                    population=design,
                    method=method,
                    n_models=len(found),
                    n_parameters=found[0].n_parameters,
                    n_tokens=found[0].n_tokens,
                    canary_share=round(float(np.mean(shares)), 3),
                    n_examples=found[0].n_examples,
                    copies=tuple(copies),
                    median=median,
                    low=low,
                    high=high,
                )
            )
    return curves


if __name__ == "__main__":
    sys.exit(run_study("reference_curve", ReferenceCurveCommand))
