"""Progress in a log, in a notebook, and where nobody looks."""

import types

import pytest

from jaxcontam import progress

STEADY = ["24%, 10 tok/s, 3 min left", "50%, 10 tok/s, 2 min left"]
HALTED = ["91%, 10 tok/s, 16 min left", "91%, 0 tok/s, waiting"]


@pytest.mark.parametrize(
    ("clock", "counts", "total", "lines"),
    [
        ((0, 10, 61, 62, 125), (100, 610, 620, 1250), 2500, STEADY),
        # What a store gave at once says nothing of what is left.
        ((0, 60, 120, 180), (90_000, 90_600, 90_600), 100_000, HALTED),
        # Nothing is printed of short work.
        ((0, 1, 2), (1, 2), 2, []),
    ],
)
def test_a_log_gets_the_rate_of_the_last_minute_after_a_minute(
    clock, counts, total, lines, capsys, monkeypatch
):
    monkeypatch.setattr(progress.time, "monotonic", map(float, clock).__next__)
    with progress.progress_bar("training") as update:
        for done in counts:
            update(done, total)
    said = capsys.readouterr().err.splitlines()
    assert said[len(said) - len(lines) :] == [f"training: {one}" for one in lines]
    assert bool(said) == bool(lines)


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


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_terminal_alone_says_what_it_waits_for(on_terminal, capsys, monkeypatch):
    if on_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.waiting_for("reading the files") as say:
        say("checking [x]\x1b: words")
    err = capsys.readouterr().err
    assert (r"checking [x]\x1b: words" in err) == on_terminal
    assert on_terminal or err == ""
