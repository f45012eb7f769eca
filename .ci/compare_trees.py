"""Run the same commands in two checkouts and compare what they report.

    python .ci/compare_trees.py OLD NEW QUICKSTART

OLD and NEW are checkouts; QUICKSTART is the folder of a finished `eval.quickstart`,
whose model and sets are the inputs. Each case prints `same`, or the fields that differ.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# What a rerun may change, and what a digest follows.
VOLATILE = {"started", "wall_seconds", "jaxcontam", "digests", "digest", "command"}
RELATIVE = 1e-9

SETS = ("pydocs-10.txt", "pydocs-50.txt", "pydocs-0a.txt", "pydocs-natural.txt")
CASES: dict[str, str] = {
    "audit": "audit {model} {s10} {s50} {s0a} --seed 1",
    "audit refused": "audit {model} {snatural}",
    "audit anyway": "audit {model} {snatural} --score-anyway",
    "audit direction": "audit {model} {s10} --tests direction",
    "audit shuffled": "audit {model} {s10} {s0a} --shuffled",
    "audit old tests": "audit {model} {s10} --tests stratified,reversal,permutation",
    "audit t": "audit {model} {s10} --tests sharded_t",
    "audit adjacency": "audit {model} {s10} --tests adjacency",
    "audit cut": "audit {model} {s10} --max-example-tokens 12 --limit 48",
    "audit bfloat16": "audit {model} {s10} --dtype bfloat16 --tests direction",
    "audit reference": "audit {model} {s10} --reference {model} --tests direction",
    "audit a slip": "audit {model} {s10} --tests stratifed",
    "membership": "membership {model} --members {s10} --nonmembers {s0a}",
    "membership alone": "membership {model} {s0a} --nonmembers {s10}",
    "calibrate": "calibrate {model} {s0a} --tests direction --draws 5",
    "prove": "prove {matrix} --boundaries 3",
    "plan": "plan --effect 0.5 --sd 4 --examples 500 --json",
    "dry run": "audit {model} {s10} --dry-run",
    "overlap": "overlap {s50} {s10}",
    "verify": "verify {report}",
}


def fields(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a JSON value by their path, without what a rerun may change."""
    if isinstance(value, dict):
        items = [(k, v) for k, v in value.items() if k not in VOLATILE]
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {path: value}
    return {
        k: v for name, one in items for k, v in fields(one, f"{path}/{name}").items()
    }


def same(one: Any, other: Any) -> bool:
    """Equal, or floats that agree to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= RELATIVE * max(abs(one), abs(other))
    return one == other


def run(tree: Path, words: list[str], out: Path) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line of an error, and the report of one command."""
    out.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "jaxcontam", *words],
        cwd=out,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    reports = sorted(out.rglob("report.json"))
    found = [json.loads(path.read_text()) for path in reports]
    errors = [line for line in done.stderr.splitlines() if ": error: " in line]
    return done.returncode, "".join(errors[:1]), fields(found)


def main() -> int:
    """Compare; returns how many cases differ."""
    old, new, quickstart = (Path(word).resolve() for word in sys.argv[1:4])
    only = sys.argv[4:]
    work = Path(tempfile.mkdtemp())
    names = {
        "s" + path.stem.rpartition("-")[2]: str(path)
        for path in (quickstart / "sets" / name for name in SETS)
    }
    matrix = work / "matrix.csv"
    rows = [[(i * j * 7919) % 101 / 10 for j in range(1, 11)] for i in range(1, 31)]
    matrix.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    names |= {
        "model": str(quickstart / "model"),
        "matrix": str(matrix),
        "report": str(quickstart),
    }
    n_different = 0
    for i, (case, words) in enumerate(CASES.items()):
        if only and case not in only:
            continue
        asked = words.format_map(names).split()
        before = run(old, asked, work / f"old{i}")
        after = run(new, asked, work / f"new{i}")
        wrong = [
            f"{key}: {before[2].get(key)!r} -> {after[2].get(key)!r}"
            for key in sorted({*before[2], *after[2]})
            if not same(before[2].get(key), after[2].get(key))
        ]
        wrong += [f"exit {before[0]} -> {after[0]}"] * (before[0] != after[0])
        wrong += [f"{before[1]!r} -> {after[1]!r}"] * (before[1] != after[1])
        n_different += bool(wrong)
        what = f"{len(after[2])} fields, exit {after[0]}"
        print(f"{case}: {'DIFFERS' if wrong else f'same ({what})'}", flush=True)
        for line in wrong[:12]:
            print(f"    {line[:160]}")
    return n_different


if __name__ == "__main__":
    sys.exit(main())
