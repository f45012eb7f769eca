"""Mean of `min_k_pp` over the set."""

from eval.leaderboard.text_scores import mean_entry

ENTRY = mean_entry("min_k_pp")
