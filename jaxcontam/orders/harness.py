"""lm-evaluation-harness's model `jaxcontam_audit`: scores, and audits of their tasks.

`lm_eval --model jaxcontam_audit --model_args pretrained=DIR --tasks X` scores as the
model `jaxcontam` does, then audits the split of each task, and puts what `audit` says
into the harness's own results, as `contamination` of `config`.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.files import TASK_PREFIX
from jaxcontam.errors import InputError
from jaxcontam.orders.design import design_of
from jaxcontam.orders.run import audit
from jaxcontam.proof.advice import verdict_fields
from jaxcontam.scoring.lm_eval_backend import JaxcontamLM


@register_model("jaxcontam_audit")
class AuditedLM(JaxcontamLM):
    """A model directory that is audited on every task that it is asked about."""

    def __init__(
        self,
        pretrained: str,
        dtype: str = "float32",
        report: str | None = None,
        tests: str | None = None,
        order: str | None = None,
        reference: str | None = None,
        **others: Any,
    ):
        """Take flags of `audit`, and others of `JaxcontamLM`; `report` is a folder."""
        design: dict[str, Any] = dict(tests=tests, order=order.split() if order else ())
        design_of(**design)
        # The harness's decorator hides the class's own signature.
        super().__init__(pretrained, dtype, **others)  # pyright: ignore[reportCallIssue]
        self._report = report
        self._tasks: dict[str, None] = {}
        self._audit = functools.partial(
            audit, pretrained, dtype=dtype, reference=reference, **design
        )

    def loglikelihood(self, requests: list[Instance], *args: Any, **kwargs: Any):
        """As `JaxcontamLM`; the tasks are kept in mind."""
        self._note(requests)
        return super().loglikelihood(requests, *args, **kwargs)

    def loglikelihood_rolling(
        self, requests: list[Instance], *args: Any, **kwargs: Any
    ):
        """As `JaxcontamLM`; the tasks are kept in mind."""
        self._note(requests)
        return super().loglikelihood_rolling(requests, *args, **kwargs)

    def generate_until(self, requests: list[Instance], *args: Any, **kwargs: Any):
        """As `JaxcontamLM`; the tasks are kept in mind."""
        self._note(requests)
        return super().generate_until(requests, *args, **kwargs)

    def get_model_info(self) -> dict[str, Any]:
        """Report the audit of each task, or why it cannot be audited."""
        block: dict[str, Any] = {}
        files: dict[str, Benchmark] = {}
        for task in self._tasks:
            try:
                files[task] = load_benchmark(f"{TASK_PREFIX}{task}")
            except InputError as e:
                block[task] = {"verdict": None, "why": str(e)}
        if not files:
            return {"contamination": block}
        try:
            result = self._audit(list(files.values()))
            found = result.report
            if self._report is not None:
                document, _ = result.written(Path(self._report))
                found = dataclasses.replace(found, digest=document["digest"])
        except InputError as e:
            why = {"verdict": None, "why": str(e)}
            return {"contamination": block | dict.fromkeys(files, why)}
        rows = {row.benchmark: row for row in result.results if row.primary}
        for row in (*rows.values(), *result.unscored):
            (task,) = (task for task in files if files[task].name == row.benchmark)
            block[task] = verdict_fields(found, row, self._report)
        return {"contamination": block}

    def _note(self, requests: list[Instance]) -> None:
        self._tasks |= dict.fromkeys(filter(None, (one.task_name for one in requests)))
