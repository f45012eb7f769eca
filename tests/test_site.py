"""The site of the documentation, built as it is published."""

import re
import subprocess
import sys

from docs.site_hooks import grouped_methods
from jaxcontam.cli.main import COMMANDS
from tests.test_docs import ROOT


def test_site_builds_with_every_link_in_place(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    for room, rows in grouped_methods().items():
        for name in rows:
            page = (tmp_path / "methods" / room / name / "index.html").read_text()
            assert "Finds" in page and "Formula" in page
    assert "Which detector is best?" in (tmp_path / "log/index.html").read_text()
    page = (tmp_path / "commands/index.html").read_text()
    assert all(f'id="{name}"' in page for name in COMMANDS)
    # Nothing is fetched from elsewhere.
    start = (tmp_path / "index.html").read_text()
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', start)
