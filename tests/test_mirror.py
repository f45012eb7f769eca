"""A store at a URL: shares on hosts that share no disk, none of which is trusted.

fsspec's memory:// and file:// stand in for a bucket, by the code that gs:// takes.
"""

import sys

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from store_process import N_MIRRORED, drawn_sequences, said_by, scorer_with
from test_shares import alone, assert_same_bits, calls_of, score_share, scorer_of

from jaxcontam.cli import main
from jaxcontam.errors import InputError
from jaxcontam.scoring.mirror import local_folder, mirrored
from jaxcontam.scoring.shares import Division


@pytest.fixture
def url():
    """An empty place in a bucket."""
    store = MemoryFileSystem.store
    store.clear()
    yield "memory://bucket/run"
    store.clear()


def score_mirrored(url, disk, index, count):
    with mirrored(url, disk):
        return score_share(disk, index, count)


def merged(url, disk):
    """Values of all calls on an empty disk, and what the model was asked for."""
    with mirrored(url, disk):
        scorer, asked = scorer_of(disk)
        return [call() for call in calls_of(scorer)], asked


def test_shares_meet_at_a_url_and_the_missing_one_is_named(url, tmp_path, capsys):
    for i in (0, 2):
        score_mirrored(url, tmp_path / str(i), i, 3)
    expected, _ = alone()
    found, asked = merged(url, tmp_path / "judge")
    assert capsys.readouterr().err == (
        "jaxcontam: warning: 1 of 3 shares are missing: 1; they are scored here\n"
    )
    assert asked
    assert_same_bits(found, expected)
    # What the judge scored is there, too.
    found, asked = merged(url, tmp_path / "again")
    assert asked == []
    assert_same_bits(found, expected)
    assert capsys.readouterr().err == ""


def test_shares_killed_on_disks_that_are_lost_give_the_numbers_of_one(tmp_path):
    runs = said_by("kill_mirrored_shares", tmp_path / "all", tmp_path / "log")
    # Killed runs published batches, and nobody asked for one of them again.
    assert [again for _, _, again in runs] == [0] * 16
    assert sum(runs[i + 1][0] - runs[i][0] for i in range(0, 16, 2)) > 0
    sequences, log = drawn_sequences(N_MIRRORED), tmp_path / "merge-log"
    with mirrored((tmp_path / "all" / "bucket").as_uri(), tmp_path / "disk"):
        scorer = scorer_with(tmp_path / "disk", log, division=Division(merges=True))
        found = scorer.sums(sequences)
    assert_same_bits([found], [scorer_with(None).sums(sequences)])
    assert not log.exists()


def truncated(data):
    return data[: len(data) // 2]


def flipped(data):
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (truncated, "is damaged (not of the length in its name); what is missing"),
        (flipped, "is damaged after byte"),
    ],
)
def test_a_damaged_object_is_noticed_and_scored_again(
    url, tmp_path, capsys, harm, words
):
    score_mirrored(url, tmp_path / "0", 0, 1)
    bucket = MemoryFileSystem()
    (path,) = bucket.glob("/bucket/run/*.scores")
    bucket.pipe_file(path, harm(bucket.cat_file(path)))
    found, asked = merged(url, tmp_path / "judge")
    assert words in capsys.readouterr().err
    assert asked
    assert_same_bits(found, alone()[0])


def test_a_truncated_object_is_published_again_by_the_host_that_wrote_it(
    url, tmp_path, capsys
):
    score_mirrored(url, tmp_path / "0", 0, 1)
    bucket = MemoryFileSystem()
    (path,) = bucket.glob("/bucket/run/*.scores")
    whole = bucket.cat_file(path)
    bucket.pipe_file(path, truncated(whole))
    with mirrored(url, tmp_path / "0"):
        assert "is damaged" in capsys.readouterr().err
    assert bucket.cat_file(path) == whole


def test_a_url_knows_the_newest_division(url, tmp_path, capsys):
    score_mirrored(url, tmp_path / "a", 0, 3)
    score_mirrored(url, tmp_path / "b", 0, 2)
    merged(url, tmp_path / "judge")
    assert "1 of 2 shares are missing: 1;" in capsys.readouterr().err


def test_names_of_objects_are_no_commands(url, tmp_path, capsys):
    bucket = MemoryFileSystem()
    bucket.pipe_file(f"/bucket/run/shard-0-of-2.{'9' * 30}", b"")
    bucket.pipe_file("/bucket/run/\x1b[2Jx.0-9.scores", b"")
    score_mirrored(url, tmp_path / "0", 0, 1)
    said = capsys.readouterr().err
    assert "x.0-9.scores: is damaged" in said and "\x1b" not in said


def test_what_another_process_fetches_may_go_while_this_one_publishes(url, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    # Listed, and not there.
    (disk / ".fetch-gone").symlink_to(disk / "nowhere")
    score_mirrored(url, disk, 0, 1)
    assert MemoryFileSystem().glob("/bucket/run/*.scores")


def test_a_half_written_line_is_not_published(url, tmp_path):
    disk = tmp_path / "disk"
    asked = score_share(disk, 0, 1)
    (path,) = disk.glob("*.scores")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with mirrored(url, disk):
        pass
    path.write_bytes(whole)
    with mirrored(url, disk):
        pass
    bucket = MemoryFileSystem()
    first, second = sorted(
        (bucket.cat_file(path) for path in bucket.glob("/bucket/run/*.scores")),
        key=len,
        reverse=True,
    )
    assert first + second == whole and first.endswith(b"\n") and asked
    assert second.count(b"\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (FileNotFoundError("bucket"), 2, "cannot be written (bucket)"),
        (OSError("Forbidden: https://storage"), 2, "cannot be written (Forbidden"),
        (ConnectionError("no route"), 3, "cannot be written now (no route)"),
    ],
)
def test_a_url_that_refuses_is_told_before_anything_slow(
    url, tmp_path, capsys, monkeypatch, error, code, words
):
    def refuse(self, path, value, **kwargs):
        raise error

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    monkeypatch.chdir(tmp_path)
    words_of = ["audit", "model", "b.txt", "--shard", "0/2", "--store", url]
    assert main(words_of) == code
    said = capsys.readouterr()
    assert said.err.startswith(f"jaxcontam: error: --store {url}: {words}")
    assert said.err.count("\n") == 2 and not said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model", "--store", "gs://b/run"], "such addresses are not read here"),
        (["model", "--store", "gs://"], "names no place"),
        (["model", "--store", "file:///"], "names no place"),
        (["model", "--store", "nosuch://b"], "cannot be read (Protocol not known"),
        (["api:http://x#m", "--store", "gs://b"], "a URL keeps scores of model dir"),
    ],
)
def test_a_url_that_cannot_be_a_store_is_refused(
    tmp_path, capsys, monkeypatch, words, message
):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.chdir(tmp_path)
    model, *flags = words
    assert main(["audit", model, "b.txt", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 2


def test_a_function_refuses_a_store_at_a_url():
    with pytest.raises(InputError, match="goes with the command line"):
        local_folder("gs://b/run")
