"""Progress in a log, in a notebook, and where nobody looks."""

import types

import pytest

from jaxcontam import progress


class Clock:
    """Time that passes where a thread waits, while an update is made."""

    def __init__(self, monkeypatch):
        self.now, self.tell, self.updates = 0.0, None, []
        monkeypatch.setattr(progress, "time", self)
        monkeypatch.setattr(progress, "threading", self)

    def monotonic(self):
        return self.now

    def Event(self):
        return self

    def Thread(self, target, daemon):
        self.tell = target
        return self

    def wait(self, seconds):
        if not self.updates:
            return True
        self.now += seconds
        self.updates.pop(0)()
        return False

    def start(self): ...

    def set(self): ...

    def join(self): ...

    def passes(self, *updates):
        """The block begins, then an update is made before each line."""
        self.updates = [lambda: None, *updates]
        self.tell()


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        # A batch may take longer than a line.
        ((300, 300, 600, 900), ["12%, 30", "12%, 15", "25%, 20", "38%, 20"]),
        # What a store gave at once says nothing of what is left.
        ((2000, 2000, 2000, 2000, 2010), ["83%, 200", "83%, 100", "83%, 67", "83%, 0"]),
        # The first batch compiles.
        ((None, None), ["10 s", "20 s"]),
    ],
)
def test_a_log_says_what_begins_at_once_and_how_far_it_is_every_ten_seconds(
    counts, lines, capsys, monkeypatch
):
    clock = Clock(monkeypatch)
    with progress.progress_bar("scoring") as update:
        made = [lambda n=n: n is not None and update(n, 2400) for n in counts]
        clock.passes(*made)
    title, *said = capsys.readouterr().err.splitlines()
    assert title == "scoring"
    assert [one.split(" tok/s")[0] for one in said[: len(lines)]] == [
        f"scoring: {one}" for one in lines
    ]
    assert clock.now == 10 * len(counts)


def test_a_log_says_what_is_left_and_what_a_phase_does_now(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    with progress.progress_bar("training") as update:
        clock.passes(lambda: update(100, 2500), lambda: None)
    with progress.waiting_for("reading the files") as say:
        clock.passes(lambda: say("checking [x]\x1b: words"))
    with progress.waiting_for("over in no time"):
        clock.tell()
    assert capsys.readouterr().err.splitlines() == [
        "training",
        "training: 4%, 10 tok/s, 4 min left",
        "training: 4%, 5 tok/s, 8 min left",
        "reading the files",
        r"checking [x]\x1b: words: 10 s",
    ]


@pytest.mark.parametrize("in_notebook", [True, False])
def test_a_function_draws_a_bar_in_a_notebook_and_is_silent_in_a_script(
    in_notebook, capsys, monkeypatch
):
    shell = types.SimpleNamespace(kernel="a kernel") if in_notebook else None
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(progress.sys.modules, "IPython", ipython)
    with progress.default_bar(None, "scoring orders") as told:
        told(3, 4)
        told(4, 4)
    said = capsys.readouterr().err
    assert ("scoring orders: 100%" in said) == in_notebook
    assert in_notebook or said == ""


def test_a_terminal_says_what_it_waits_for(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.waiting_for("reading the files") as say:
        say("checking [x]\x1b: words")
    assert r"checking [x]\x1b: words" in capsys.readouterr().err
