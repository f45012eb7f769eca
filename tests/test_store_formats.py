"""The study of file formats, at a size that takes a second."""

from eval.store_formats import StoreFormats


def test_only_records_keep_what_was_whole_and_serve_nothing_wrong(capsys):
    found = {row.name: row for row in StoreFormats(n_batches=200, n_damages=20).run()}
    assert set(found) == {"records", "SQLite, WAL", "SQLite, rollback", "Arrow stream"}
    # The mean over 20 cuts; a cut early in the file weighs a lost record most.
    assert found["records"].kept_after_cut > 0.8
    assert found["records"].wrong_after_flip == 0.0
    assert found["SQLite, WAL"].kept_after_cut == 0.0
    assert found["Arrow stream"].wrong_after_flip > 0.0
    assert "records" in capsys.readouterr().out
