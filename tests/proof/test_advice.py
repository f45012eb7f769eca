"""Names of checks as people read them; steps and reasons are in the snapshots."""

from jaxcontam.proof.advice import plain_name
from jaxcontam.stats.pretests import columns, pretest_battery


def test_every_pretest_has_a_plain_name():
    rows = [
        {"id": f"q{i}", "level": i % 3, "passage": "p" * (i // 2), "q": f"is {i}?"}
        for i in range(40)
    ]
    texts = [f"{row['id']}: {row['passage']} {row['q']}" for row in rows]
    for test in pretest_battery(texts, columns(rows), seed=0):
        name = plain_name(test.name)
        assert "_" not in name and "{" not in name, name
        assert test.name.partition(":")[2] in name
    assert plain_name("equal_neighbours:subject") == "neighbours of equal subject"
    for kind in ("attraction", "lags", "direction"):
        name = plain_name(f"blind_{kind}:words")
        assert "without a model" in name and "(words)" in name
