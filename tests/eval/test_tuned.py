"""`python -m eval.tuned`: its tables."""

from eval.tuned import _grids


def test_tables_count_what_was_found():
    keyed = {"steps": 0, "method": "canary_chat", "form": "chat"}
    found = ((0, 4, 1e-9, 0.5), (1, 4, 0.2, 0.1), (0, 0, 0.04, 0.0), (0, 0, 0.5, 0.0))
    names = ("model", "copies", "value", "share")
    rows = [keyed | dict(zip(names, one, strict=True)) for one in found]
    later = {"model": 0, "steps": 9, "copies": 4}
    rows += [
        later | {"method": name, "value": value}
        for name, value in (("min_k", 0.75), ("direction", 1e-4))
    ]
    known, unread, left = _grids(rows)
    assert known.rows == (("chat, 4 copies", "0.30 (1 of 2)"),)
    counts = [row[:2] for row in unread.rows]
    assert counts == [("0.05", "1"), ("0.01", "0"), ("0.001", "0")]
    assert left.header == ("", "9 steps")
    assert left.rows == (
        ("min_k, 4 copies", "0.75"),
        ("direction, 4 copies", "0.0001 (1 of 1)"),
    )
