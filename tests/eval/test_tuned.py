"""`python -m eval.tuned`: its tables."""

from eval.tuned import _grids


def test_tables_count_what_was_found():
    keyed = {"method": "canary_chat", "form": "planted as chat, asked as chat"}
    rows = [
        {"model": m, "steps": 0, **keyed, "copies": 4, "value": p, "share": s}
        for m, p, s in ((0, 1e-9, 0.5), (1, 0.2, 0.1))
    ]
    rows += [
        {"model": 0, "steps": 0, **keyed, "copies": 0, "value": p, "share": 0.0}
        for p in (0.04, 0.5)
    ]
    rows += [
        {"model": 0, "steps": 9, "method": "min_k", "copies": 4, "value": 0.75},
        {"model": 0, "steps": 9, "method": "direction", "copies": 4, "value": 1e-4},
    ]
    known, unread, left = _grids(rows)
    line = "planted as chat, asked as chat, 4 copies"
    assert known.rows == ((line, "0.30 (1 of 2)"),)
    assert [row[:2] for row in unread.rows] == [
        ("0.05", "1"),
        ("0.01", "0"),
        ("0.001", "0"),
    ]
    assert left.header == ("", "9 steps")
    assert left.rows == (
        ("min_k, 4 copies", "0.75"),
        ("direction, 4 copies", "0.0001 (1 of 1)"),
    )
