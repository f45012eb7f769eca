"""What a training run would need: memory, time and chip-hours."""
