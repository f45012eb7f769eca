"""`loss` of the set's texts against texts that were never seen."""

from eval.leaderboard.text_scores import unseen_entry

ENTRY = unseen_entry("loss")
