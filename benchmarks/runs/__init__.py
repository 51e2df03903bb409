"""Predictions on runs that others measured, beside what others reached on them: ``python -m benchmarks runs``."""
