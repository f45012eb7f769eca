"""Scripts in names and texts do not run in a page, asked of a browser."""

import re
import shutil
import subprocess

import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.report_files import write_files
from tests.faults.fuzzed import RECORDED, table
from tests.support.report_documents import audit_report, order_result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.unoptimised,
    pytest.mark.skipif(
        shutil.which("chromium") is None, reason="chromium is not installed"
    ),
]

MARK = "document.documentElement.dataset.ran=1"
HOSTILE = (
    f"<script>{MARK}</script></title></style></script><svg onload={MARK}>"
    f"'\"><img src=x onerror={MARK}><details open ontoggle={MARK}>$^$"
)


def opened(page, folder):
    """The opening tag of a page after a browser has shown it."""
    # It refuses to run as root in a box of its own.
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    words += [f"--user-data-dir={folder}", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run(
        [*words, page.as_uri()], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"<html[^>]*>", done.stdout)
    assert found is not None and "</body>" in done.stdout
    return found[0]


def test_a_browser_runs_nothing_of_a_page(tmp_path):
    name = HOSTILE.replace("/", "\u2215")
    path = tmp_path / f"{name[:200]}.csv"
    row = {**RECORDED, "second_piece": HOSTILE, "generated_guided_completion": HOSTILE}
    path.write_bytes(table([row] * 4))
    out = tmp_path / "replicate"
    assert main(["replicate", "--recorded", str(path), "--out", str(out)]) == 0
    report = audit_report(
        order_result(HOSTILE, warnings=(HOSTILE,)), order_result(name), model=HOSTILE
    )
    _, page = write_files(
        report, {ARCHIVE_NAME: archive_bytes([None, None])}, tmp_path / "audit"
    )
    browser = tmp_path / "browser"
    for shown in (page, out / "report.html"):
        assert "dataset.ran" in shown.read_text()
        assert opened(shown, browser) == '<html lang="en">'
    # Were a text not escaped, the page's policy would stop it; without one it runs.
    text = page.read_text().replace("</body>", f"{HOSTILE}</body>")
    page.write_text(text)
    assert opened(page, browser) == '<html lang="en">'
    page.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
    assert opened(page, browser) == '<html lang="en" data-ran="1">'
