"""The small model that many tests share."""

import fcntl

from tests.support.compile_mode import compiling


def pulse_run(shared):
    """The folder of a finished `eval.quickstart --tiny` run with seed 0.

    It is compiled plainly whichever test asks first, so that its bits are the same
    ones in every order of the tests.

    Args:
        shared: Folder of all worker processes of a run of the tests.
    """
    from eval.quickstart import Quickstart

    out = shared / "quickstart"
    # The second process waits, or finds it.
    with (shared / "quickstart.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "report.html").exists():
            with compiling(plainly=True):
                Quickstart(out=out, tiny=True).run()
    return out
