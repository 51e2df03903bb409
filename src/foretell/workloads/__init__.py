"""A training step's operators, read from a model's code."""
