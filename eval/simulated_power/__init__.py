"""Simulated power of order tests, beside what the planner's formulas say."""
