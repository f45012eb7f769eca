"""One law for all that a run goes on from, whatever killed it or damaged its files.

What was kept is there and is not made again, nothing torn is served, and the end is
that of a run which nothing disturbed.
"""

import contextlib
import functools
import io
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.faults.resumable import STORES, KilledError, Process, disk_of

pytestmark = pytest.mark.unoptimised


@functools.cache
def undisturbed(name):
    """What a run gives, and its parts in their order."""
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder))
        return STORES[name].run(process), process.made


class Resumption(RuleBasedStateMachine):
    """Starts of one run, between which its files are damaged."""

    def __init__(self, name):
        super().__init__()
        self.store = STORES[name]
        self.result, self.parts = undisturbed(name)
        self.folder = Path(tempfile.mkdtemp())
        self.held, self.places, self.processes = [], {}, []
        self.is_flipped = False

    def teardown(self):
        """It goes on to its end, and once more finds all there."""
        for _ in range(2):
            self.start(10**9)
        shutil.rmtree(self.folder)

    @rule(lasts=st.integers(0, 4))
    def start(self, lasts):
        process = Process(self.folder, lasts, appends=self.store.appends)
        self.processes.append(process)
        try:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                result = self.store.run(process)
        except KilledError:
            # What a process does on its way out is not done by one that is killed.
            restore(self.folder, process.disk)
            result, kept = None, list(process.places)
            assert len(process.made) - len(kept) <= self.store.n_waiting
        else:
            assert result == self.result
            process.look()
        if not self.is_flipped:
            assert "is damaged" not in said.getvalue(), "a torn end is no damage"
        again = [part for part in process.made if part in self.held]
        assert again == [], "made again, though it was kept"
        assert [part for part in process.made if part not in self.parts] == []
        if result is not None:
            kept = self.parts
            if self.store.behind:
                self.held, self.places, process.places = [], {}, {}
        for part in kept:
            # What is nowhere in particular may be in any file.
            found = process.places.get(part, [] if part in self.held else [("", 0, 0)])
            self.places[part] = self.places.get(part, []) + found
        self.held += [part for part in kept if part not in self.held]

    def files(self):
        """Names, in an order that is the same in each replay."""
        data = {name: data for name, (data, _) in disk_of(self.folder).items() if data}
        return sorted(data, key=lambda name: (len(data[name]), data[name]))

    def has_files(self):
        return bool(self.files())

    @precondition(has_files)
    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def cut(self, which, share):
        path, at = self.place(which, share)
        data = path.read_bytes()
        path.write_bytes(data[:at])
        if at < len(data):
            self.lose(path, lambda first, end: end > at)

    @precondition(has_files)
    @rule(which=st.integers(0, 9), tail=st.binary(min_size=1, max_size=20))
    def end_in_half_a_record(self, which, tail):
        if self.store.appends:
            path, _ = self.place(which, 1)
            path.write_bytes(path.read_bytes() + tail.replace(b"\n", b"\0"))

    @precondition(lambda self: self.store.notices and self.has_files())
    @rule(which=st.integers(0, 9), share=st.floats(0, 1), bit=st.integers(0, 7))
    def flip(self, which, share, bit):
        path, at = self.place(which, share)
        data = bytearray(path.read_bytes())
        at = min(at, len(data) - 1)
        data[at] ^= 1 << bit
        self.is_flipped = True
        path.write_bytes(data)
        # A line whose end is no longer one takes the next with it.
        self.lose(path, lambda first, end: first <= at + 1 and at < end)

    @precondition(lambda self: not self.store.spares and self.has_files())
    @rule(which=st.integers(0, 9))
    def delete(self, which):
        path, _ = self.place(which, 0)
        path.unlink()
        self.lose(path, lambda first, end: True)

    @precondition(lambda self: self.store.partial is not None and self.has_files())
    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def leave_a_part_of_a_file(self, which, share):
        path, at = self.place(which, share)
        name = str(path.relative_to(self.folder))
        partial = self.folder / re.sub(*self.store.partial, name)
        if not partial.exists() and partial != path:
            partial.parent.mkdir(exist_ok=True)
            partial.write_bytes(path.read_bytes()[:at])

    def place(self, which, share):
        """A file, and a place in it."""
        names = self.files()
        name, first = names[which % len(names)], 0
        if self.store.spares:
            name = "metrics.jsonl"
            ends = [one[2] for part in self.held for one in self.places[part]]
            first = max(ends, default=0)
        size = (self.folder / name).stat().st_size
        return self.folder / name, first + round(share * (size - first))

    def lose(self, path, is_hit):
        """Parts that may be made again now."""
        disk, name = disk_of(self.folder), str(path.relative_to(self.folder))
        hit = [
            part
            for part in self.held
            for file, first, end in self.places[part]
            if (is_hit(first, end) if file == name else file not in disk)
        ]
        if hit and self.store.behind:
            hit = self.parts[min(map(self.parts.index, hit)) :]
        self.held = [part for part in self.held if part not in hit]


def restore(folder, disk):
    """Files as they were."""
    for name in disk_of(folder).keys() - disk.keys():
        (folder / name).unlink()
    for name, (data, _) in disk.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("name", STORES)
def test_a_run_that_is_disturbed_ends_as_one_that_was_not(name):
    run_state_machine_as_test(
        lambda: Resumption(name),
        settings=settings(
            max_examples=STORES[name].n_examples,
            stateful_step_count=8,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
