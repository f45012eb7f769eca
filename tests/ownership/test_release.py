"""`jaxcontam release`: a drawn order, byte-faithful, checkable, never half there."""

import hashlib
import itertools
import json
import math
import os
import stat
from pathlib import Path

import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.release import (
    check_release,
    cut_records,
    read_records,
    release_order,
)
from jaxcontam.errors import InputError
from jaxcontam.orders.benchmarks import read_files
from jaxcontam.orders.design import AuditDesign

pytestmark = pytest.mark.unoptimised

# One file a format, with what a parser would lose: spaces, escapes, line ends, quotes
# over several lines, blank lines, a byte order mark, no last line end, repeats.
FILES = {
    "a.jsonl": b'{"q": "caf\\u00e9",  "n":1.0}\n{"n": 1e0}\n\n  {"q":"x"} \n{"n": 1e0}',
    "b.jsonl": b"\xef\xbb\xbf" + b"".join(b'{"i": %d}\r\n' % i for i in range(30)),
    "c.json": b'[ {"q": "a"},\n  "tw\\u006f",\n\t[3] , {"q":"a"}]\n',
    "o.json": b'{"c": "[x]", "examples" : [{"q": "a"}, {"q":"b"},{}] ,\n "n": 1}\n',
    "d.csv": b'q,a\r\n"one, \r\ntwo",1\r\n"say ""so""",2\r\nq,a\r\nplain , 3',
    "e.tsv": b"q\ta\nq\t1\n\nx\t 2\nz\t3\n",
    "f.txt": "x\nxx\nein\u2028Satz\n\n  x\nd\u00e9j\u00e0\n".encode(),
}


@pytest.fixture
def release(tmp_path):
    """Release one of `FILES`; returns (original, released, seed file)."""

    def run(name):
        path, seed = tmp_path / name, tmp_path / "seed.json"
        path.write_bytes(FILES[name])
        assert main(["release", str(path), "--seed-file", str(seed)]) == 0
        return path, path.with_stem(path.stem + "-released"), seed

    return run


def seeds(n):
    """Seeds as good as random ones, the same in every run."""
    return [hashlib.sha256(b"%d" % i).digest() for i in range(n)]


@pytest.mark.parametrize("name", FILES)
def test_released_file_holds_the_same_raw_records_in_the_order_of_the_seed(
    release, name, capsys
):
    path, released, seed = release(name)
    before, after = read_records(path), read_records(released)
    assert before.encoded() == FILES[name], "cutting a file loses no byte"
    assert sorted(after.records) == sorted(before.records)
    assert after.gaps == before.gaps
    secret = json.loads(seed.read_text())["seed"]
    order = release_order(before.records, bytes.fromhex(secret))
    assert after.records == tuple(before.records[i] for i in order)
    said = capsys.readouterr()
    sealed = hashlib.sha256(seed.read_bytes()).hexdigest()
    assert f"commitment: sha256:{sealed}\n" in said.out
    # A seed that can be searched for is told.
    told = "seed.json decides 7 bits" in said.out.replace("\n", " ")
    assert told == (name == "f.txt") and ("bits" in said.out) == (name != "b.jsonl")
    assert main(["release", str(released), "--check", "--seed-file", str(seed)]) == 0
    checked = capsys.readouterr()
    assert len(bytes.fromhex(secret)) == 32
    assert secret not in said.out + said.err + checked.out + checked.err
    assert secret not in released.read_text()
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", FILES)
def test_released_file_with_any_byte_changed_is_refused(release, name):
    _, released, seed = release(name)
    data = released.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        released.write_bytes(changed)
        with pytest.raises(InputError):
            check_release(released, seed)
    released.write_bytes(data)
    records = read_records(released).records
    orders = math.factorial(len(records))
    for record in set(records):
        orders //= math.factorial(records.count(record))
    assert check_release(released, seed).bits == pytest.approx(math.log2(orders))


def test_order_depends_on_the_set_of_records_and_not_on_their_order():
    records = [*"abcdef", "a"]
    shuffled = [records[i] for i in (3, 6, 0, 5, 2, 1, 4)]
    for seed in seeds(20):
        first, second = (
            [rows[i] for i in release_order(rows, seed)] for rows in (records, shuffled)
        )
        assert first == second


def test_every_order_is_equally_likely_over_seeds():
    n = 12_000
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in seeds(n):
        counts[tuple(release_order("wxyz", seed))] += 1
    expected = n / 24
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    # 23 degrees of freedom: mean 23, 3.3 standard deviations of 6.8 above it.
    assert chi2 < 23 + 3.3 * math.sqrt(2 * 23)


def test_rows_without_a_header_are_all_moved_or_refused(tmp_path, capsys):
    """A first row that no seed moved would be tested as if one had."""
    path, seed = tmp_path / "x.csv", tmp_path / "seed.json"
    path.write_text("".join(f"row {i},{i}\n" for i in range(30)))
    words = ["release", str(path), "--seed-file", str(seed)]
    assert main(words) == 0
    released = tmp_path / "x-released.csv"
    with pytest.raises(InputError, match="its records differ") as found:
        read_files(released, AuditDesign(order=(str(seed),), no_header=True))
    assert "--no-header" in found.value.hint
    seed.unlink(), released.unlink()
    assert main([*words, "--no-header"]) == 0
    (file,) = read_files(
        released, AuditDesign(order=(str(seed),), no_header=True)
    ).benchmarks
    assert len(file) == 30 and file.order_provenance == "released"
    assert main([*words[:1], str(released), *words[2:], "--check", "--no-header"]) == 0


def test_a_file_is_released_with_a_seed_of_its_own_and_without_links(
    tmp_path, monkeypatch
):
    def no_links(*_, **__):
        raise OSError(95, "not supported")

    path, seeds = tmp_path / "x.txt", []
    path.write_text("a\nb\n")
    for i in range(2):
        words = ["release", str(path), "--seed-file", str(tmp_path / f"s{i}")]
        words += ["--out", str(tmp_path / f"o{i}.txt")]
        assert main(words) == 0
        seeds.append(json.loads((tmp_path / f"s{i}").read_text())["seed"])
        # The second time on a file system that has none.
        monkeypatch.setattr(os, "link", no_links)
    assert seeds[0] != seeds[1]
    names = {"x.txt", "s0", "s1", "o0.txt", "o1.txt"}
    assert {one.name for one in tmp_path.iterdir()} == names
    assert main(words) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "not a seed file of jaxcontam release"),
        ({"method_version": 2}, "unknown method 'hmac-sha256-sort' version 2"),
        ({"seed": "ab"}, "the seed is not 32 bytes in hexadecimal"),
        ({"n_examples": "4"}, "fields are missing or of the wrong type"),
        ({"more": 1}, "fields are missing or of the wrong type"),
        ({"seed": "00" * 32}, "the same records in another order"),
        ({"released_digest": "sha256:0"}, "its seed and its digests do not agree"),
        ({"content_digest": "sha256:0"}, "its records differ"),
    ],
)
def test_spoilt_seed_file_is_refused_without_showing_the_seed(
    release, capsys, change, message
):
    _, released, seed = release("b.jsonl")
    fields = json.loads(seed.read_text())
    seed.write_text(json.dumps(fields | change))
    capsys.readouterr()
    assert main(["release", str(released), "--check", "--seed-file", str(seed)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert fields["seed"] not in error


def test_a_seed_always_gives_the_same_order():
    # A proof may be opened years later: these bytes must always give this order.
    records = [f"record {i}" for i in range(8)]
    first_version = [0, 2, 3, 7, 5, 1, 4, 6]
    assert release_order(records, bytes(range(32))) == first_version


def test_audit_of_a_released_file_assumes_nothing_of_it(pulse, tmp_path, capsys):
    path, seed, out = tmp_path / "x.jsonl", tmp_path / "seed.json", tmp_path / "out"
    # Sorted by length: as published it would fail the checks of the file.
    path.write_text("".join(f'{{"q": "{"ab" * i}"}}\n' for i in range(1, 41)))
    released = tmp_path / "x-released.jsonl"
    assert main(["release", str(path), "--seed-file", str(seed)]) == 0
    capsys.readouterr()
    words = ["audit", str(pulse / "model"), "--tests", "reversal", "--out", str(out)]
    assert main([*words, str(released), "--order", str(seed)]) == 0
    said = capsys.readouterr()
    (row,) = json.loads((out / "report.json").read_text())["results"]
    assert row["order_provenance"] == "released"
    assert row["null"] == "designed randomisation"
    assert row["pretests"], "shown, though they do not decide"
    assert row["verdict"] != "invalid design"
    secret = json.loads(seed.read_text())["seed"]
    written = [p.read_text() for p in (out / "report.json", out / "report.html")]
    assert secret not in "".join([*written, said.out, said.err])
    sealed = f"sha256:{hashlib.sha256(seed.read_bytes()).hexdigest()}"
    (stated,) = row["commitments"]
    assert (stated["file"], stated["sha256"]) == (str(seed), sealed)
    assert stated["made"] == json.loads(seed.read_text())["made"]
    assert all(sealed in text for text in (said.out, written[1]))
    assert main(["verify", str(out)]) == 0
    assert "has the digest of its commitment" in capsys.readouterr().out
    kept = seed.read_bytes()
    seed.write_bytes(kept + b"\n")
    assert main(["verify", str(out)]) == 3
    assert "the report says" in capsys.readouterr().out
    seed.unlink()
    assert main(["verify", str(out)]) == 0
    assert "a commitment was not checked" in capsys.readouterr().out
    seed.write_bytes(kept)
    words[-1] = str(tmp_path / "other")
    assert main([*words, str(path), "--order", str(seed)]) == 2
    assert capsys.readouterr().err == (
        f"jaxcontam: error: {path}: not the file that {seed} released (the same "
        "records in another order)\n"
        "  hint: test the file exactly as it was released\n"
    )


def test_header_that_repeats_as_a_record_stays_in_place():
    layout = cut_records(Path("x.csv"), "q,a\nq,a\nq,b\n")
    assert layout.records == ("q,a", "q,b")
    assert layout.encoded([1, 0]) == b"q,a\nq,b\nq,a\n"
