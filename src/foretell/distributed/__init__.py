"""A training step on many devices: its timeline, and what it consumes."""
