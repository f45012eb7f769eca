"""Commands: one file each, a frozen dataclass whose fields are the flags."""
