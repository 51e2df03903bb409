"""Predictions of published runs, compared with published results: ``python -m benchmarks runs``."""
