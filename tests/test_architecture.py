"""docs/architecture.md names the files that an audit runs through."""

import re
import sys
from pathlib import Path

import numpy as np

import jaxcontam
from jaxcontam.models.checkpoint import save_checkpoint
from tests.support.membership_model import fast_tokenizer, fresh_decoder

ROOT = Path(__file__).parents[1]
PACKAGE = Path(jaxcontam.__file__).parent


def files_run(call):
    """Our files whose functions run, those of imports left out."""
    found = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        is_call = event == "call" and frame.f_code.co_name != "<module>"
        if is_call and path.is_relative_to(PACKAGE):
            found.add(path.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_an_audit_runs_the_files_of_the_page_and_about_sixty_others(tmp_path):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \d+ \| `([^`]+)`", page, flags=re.MULTILINE)
    assert len(named) == 19
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(300)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(40)]
    save_checkpoint(fresh_decoder(), fast_tokenizer(), tmp_path)
    # A cut that no other test makes: the programs are traced here.
    run = files_run(lambda: jaxcontam.audit(tmp_path, texts, max_example_tokens=37))
    assert set(named) <= run
    assert len(run) <= 85
