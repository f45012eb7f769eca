"""Speed of scoring, beside what people use today: one room a question."""
