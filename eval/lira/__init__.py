"""Membership with shadow models: what the scores of one model cannot exceed."""
