"""The command line that a report quotes, from the fields of a command."""

import dataclasses
import types
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import tyro

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.members.flags import Membership
from jaxcontam.orders.flags import Audit
from jaxcontam.proof.flags import Prove
from jaxcontam.renamed import renewed
from jaxcontam.reports.flags import check_positive, flags_of, own_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    model: Annotated[str, tyro.conf.Positional]
    corpus: tuple[Path, ...] = ()
    limit: int | None = None
    tiny: bool = False
    json: bool = False


def test_flags_parse_back_to_the_same_command():
    assert flags_of(Command(model="m", json=True)) == ()
    command = Command(model="m", corpus=(Path("a"), Path("b c")), limit=3, tiny=True)
    words = flags_of(command)
    assert words == ("--corpus", "a", "b c", "--limit", "3", "--tiny")
    assert tyro.cli(Command, args=["m", *words]) == command


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--shuffled --score-anyway", "--order random anyway"),
        ("--shuffled --seed-file s.json", "--order random s.json"),
        (
            "--tests permutation,reversal --n-orders 99",
            "--tests permutation:99,reversal",
        ),
        ("--n-orders 9 --no-store --batch-tokens 64 --price-in 1", ""),
        (
            "--tests options --n-orders 4 --fix-answer --options-field A,B",
            "--tests options:4:fixed --fields options=A,B",
        ),
        (
            "--group-field g --text-field q --chat-template both --limit 3",
            "--group-field g --limit 3 --text q --separator chat:both",
        ),
    ],
)
def test_an_audit_of_an_earlier_version_is_read_in_new_words(old, new):
    words = ("m", "a.txt", "b.txt")
    renamed = (*words, *new.split())
    assert renewed((*words, *old.split())) == renewed(renamed) == renamed


def test_number_below_one_is_named_as_its_flag():
    assert check_positive(Command(model="m"), "limit") is None
    for value in (0, -5):
        with pytest.raises(
            InputError, match=f"--limit must be at least 1, .* {value}$"
        ):
            check_positive(Command(model="m", limit=value), "limit")


def test_reports_named_by_their_flags_share_scores_unless_a_folder_is_named():
    """Another choice of flags has a folder of its own, and asks for nothing twice."""
    model: Any = types.SimpleNamespace(name="m", store_name="store")
    out = Path("runs/audit/m-1")
    command = Audit(model="m", benchmark=(Path("b.txt"),))
    assert command.store_of(model, out) == Path("runs/audit/m-store")
    named = dataclasses.replace(command, out=out)
    assert named.store_of(model, out) == out / "store"


def test_a_report_of_other_choices_has_a_folder_of_its_own():
    def folder(**fields):
        command = Membership(model="m", texts="t.txt", nonmembers="n.txt", **fields)
        return command.report_folder("membership", "m", "digest")

    for fields in ({"scores": ("loss",)}, {"reference": "older"}, {"seed": 1}):
        assert folder(**fields) != folder()
    assert folder(json=True) == folder(store="scores") == folder()


def test_a_second_run_in_one_folder_ends_before_it_writes(tmp_path, capsys):
    matrices, out = [tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "new" / "out"
    for seed, path in enumerate(matrices):
        rows = np.random.default_rng(seed).normal(size=(30, 5))
        np.savetxt(path, rows, delimiter=",")
    first, second = (["prove", str(path), "--out", str(out)] for path in matrices)
    with own_folder("prove", Prove(matrix=matrices[0], out=out)):
        assert main(second) == 2
        assert capsys.readouterr().err == (
            f"jaxcontam: error: {out}: another run writes to it\n"
            "  hint: wait until that run has ended, or name another folder\n"
        )
    assert not out.parent.exists()
    assert main(first) == main(first) == 0
    report = out / "report.json"
    before = report.read_bytes()
    for other in (second, [*first, "--seed", "1"]):
        capsys.readouterr()
        assert main(other) == 2
        said = capsys.readouterr().err
        assert "holds the report of another run" in said
        assert said.endswith(f"{report}: what was scored and answered is kept\n")
        assert report.read_bytes() == before
    report.unlink()
    assert main([*first, "--seed", "1"]) == 0
    assert b'"seed": 1' in report.read_bytes()
