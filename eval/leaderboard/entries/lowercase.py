"""Mean of `lowercase` over the set."""

from eval.leaderboard.text_scores import mean_entry

ENTRY = mean_entry("lowercase")
