"""What audits say of a file alone and beside a reference, as studies record it."""

import functools
from pathlib import Path
from typing import Any

import jaxcontam
from eval.study import Clock
from jaxcontam.proof.verdict import CONTAMINATED_LEVEL
from jaxcontam.reports.report_files import make_folder
from jaxcontam.scoring.opened import OpenModel


def shared_store(folder: Path) -> Path:
    """A folder of scores in which a model's are found for it as a reference, too.

    An audit keeps those of a reference in `reference` there.
    """
    make_folder(folder)
    if not (reference := folder / "reference").exists():
        reference.symlink_to(".", target_is_directory=True)
    return folder


def audited(
    model: OpenModel,
    reference: OpenModel | None,
    file: Path,
    store: Path,
    *,
    always: bool = False,
    **design: Any,
) -> dict[str, Any]:
    """What an audit says alone, and beside the reference where it could accuse.

    A p-value a test, the deciding one first; `always` asks beside the reference
    whatever p is.
    """
    clock = Clock.start()
    ask = functools.partial(jaxcontam.audit, model, file, store=store, **design)
    alone = ask()
    row: dict[str, Any] = {"verdict": alone.verdict, "refused": []}
    if alone.results:
        (first,) = [test for test in alone.results if test.primary]
        row |= {
            "n": first.n_examples,
            **{f"{test.method}_p": test.p_value for test in alone.results},
            "effect": first.effect,
            "refused": [test.name for test in first.refusals],
        }
        # No reference makes an accusation of a larger p.
        is_small = first.p_value <= CONTAMINATED_LEVEL
        if reference is not None and (is_small or always):
            both = ask(reference=reference)
            beside = both[first.method].reference
            assert beside is not None
            row |= {
                "verdict_beside": both.verdict,
                "reference_p": beside.p_value,
                "difference_p": beside.difference_p,
                "half_p": beside.half_p,
            }
    else:
        row["refused"] = [t.name for one in alone.unscored for t in one.refusals]
    return row | {"cpu_seconds": clock.cost()["cpu_seconds"]}
