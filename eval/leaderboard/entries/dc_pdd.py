"""Mean of `dc_pdd` over the set."""

from eval.leaderboard.text_scores import mean_entry

ENTRY = mean_entry("dc_pdd")
