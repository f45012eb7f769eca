"""Progress in a log, where no bar can be drawn."""

from jaxcontam.commands import progress


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
