"""What a training run would need: memory, collectives, time and chip-hours."""
