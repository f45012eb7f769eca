"""The journal of finished pieces: what a killed run leaves, and what a rerun finds."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from tests.support.api_transport import PATH, Server, opened

ROOT = Path(__file__).resolve().parents[2]


def test_a_line_without_its_checksum_is_passed_over_with_one_line(tmp_path, capsys):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.add("a", 1)
    journal.add("b", 2)
    path.write_bytes(path.read_bytes().replace(b": 1,", b": 7,") + b"[" * 10**6 + b"\n")
    again = Journal(path)
    assert ("a" in again, again["b"]) == (False, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}: is damaged after byte 0" in line


def test_two_writers_of_one_file_give_each_key_its_own_value(tmp_path):
    """The second one appends at a place that the first one does not know of."""
    path = tmp_path / "j.jsonl"
    one, other = Journal(path), Journal(path)
    for i in range(3):
        one.add(f"one {i}", [1, i])
        other.add(f"other {i}", [2, i])
    for i in range(3):
        assert (one[f"one {i}"], other[f"other {i}"]) == ([1, i], [2, i])
        assert Journal(path)[f"other {i}"] == [2, i]
    # The last value counts.
    one.add("one 0", 3)
    assert one["one 0"] == Journal(path)["one 0"] == 3


WRITER = """
import sys
from pathlib import Path
from jaxcontam.data.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.add("other", 1)
print("written", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path):
    """Before it pays: a request is sent once its answer can be kept."""
    path, server = tmp_path / "j.jsonl", Server()
    journal = Journal(path)
    words = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"written\n"
        with pytest.raises(InputError, match=r"j\.jsonl: another run writes to it"):
            journal.add("a", 1)
        with (
            opened(server, journal) as client,
            pytest.raises(InputError, match="another run writes to it"),
        ):
            client.post(PATH, {"prompt": "p", "max_tokens": 1})
        assert (client.n_sent, server.prompts) == (0, [])
        # Killed, not closed.
        writer.kill()
    journal.add("a", 1)
    assert (Journal(path)["a"], Journal(path)["other"]) == (1, 1)


@pytest.mark.parametrize("content", ["other", "none"])
def test_a_file_that_another_one_replaced_gives_no_value_of_another_key(
    tmp_path, content
):
    path, other = tmp_path / "j.jsonl", tmp_path / "other.jsonl"
    journal = Journal(path)
    journal.add("a", 1)
    Journal(other).add("b", 2)
    other.replace(path) if content == "other" else path.write_bytes(b"")
    with pytest.raises(InputError, match="changed while it was in use"):
        journal["a"]


def test_a_journal_in_a_missing_folder_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "none" / "j.jsonl").add("a", 1)


def test_many_threads_write_whole_lines_and_read_their_own_values(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)

    def write(thread):
        for i in range(20):
            key = f"{thread}/{i}"
            journal.add(key, "x" * (thread * 37 + i))
            assert journal[key] == "x" * (thread * 37 + i)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len({row["key"] for row in rows}) == 8 * 20
    again = Journal(path)
    assert all(again[row["key"]] == row["value"] for row in rows)
