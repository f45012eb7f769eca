"""Training beside torch's: weights, schedule, decay and clipping alike."""


def test_thirty_steps_lose_what_torchs_lose(study):
    for row in study("torch_curve").document["rows"]:
        # Adam divides by the root of its second moment: roundings grow.
        assert row["largest"] < 1e-3, row
        assert row["deviation"] > 0
