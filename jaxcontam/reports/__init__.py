"""A report: its fields, its files, its page, and how they are read again."""
