"""The study of overlap's precision, on few questions."""

import json

from eval.overlap_precision import CLEAN, PLANTED, OverlapPrecision, searched


def test_whole_copies_are_found_and_clean_questions_in_their_frame_are_not(tmp_path):
    n = 30
    rows = searched(n, seed=1)
    found = [row.is_found for row in rows]
    assert all(found[: 2 * n]), PLANTED[:2]
    assert all(row.rule for row in rows), "all share the frame with the corpus"
    at = n * (len(PLANTED) + CLEAN.index("clean"))
    assert sum(found[at : at + n]) <= n // 10
    document = OverlapPrecision(n=2, out=tmp_path).run()
    assert document["exact, precision"].startswith("1.00")
    assert json.loads((tmp_path / "overlap_precision.json").read_text()) == document
