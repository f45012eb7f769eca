"""Progress in a log, in a notebook, and where nobody looks."""

import types

import pytest

from jaxcontam import progress


def test_a_log_gets_lines_only_after_a_minute(capsys, monkeypatch):
    clock = iter([0.0, 10.0, 61.0, 62.0, 125.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress_bar("training") as update:
        for done in (100, 610, 620, 1250):
            update(done, 2500)
    assert capsys.readouterr().err.splitlines() == [
        "training: 24%, 10 tok/s, 3 min left",
        "training: 50%, 10 tok/s, 2 min left",
    ]


def test_rate_in_a_log_is_that_of_the_last_minute(capsys, monkeypatch):
    """What a store gave at once says nothing of what is left."""
    clock = iter([0.0, 60.0, 120.0, 180.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress_bar("scoring") as update:
        for done in (90_000, 90_600, 90_600):
            update(done, 100_000)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "scoring: 91%, 10 tok/s, 16 min left",
        "scoring: 91%, 0 tok/s, waiting",
    ]


def test_nothing_is_printed_of_short_work(capsys):
    with progress.progress_bar("training") as update:
        update(1, 2)
        update(2, 2)
    assert capsys.readouterr().err == ""


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
    err = capsys.readouterr().err
    assert r"checking [x]\x1b: words" in err


def test_a_log_is_not_told_what_is_waited_for(capsys):
    with progress.waiting_for("reading the files") as say:
        say("checking x: words")
    assert capsys.readouterr().err == ""
