"""Mean of `surp` over the set."""

from eval.leaderboard.text_scores import mean_entry

ENTRY = mean_entry("surp")
