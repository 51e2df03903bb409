"""Every figure in README and docs comes from one of these: ``python -m benchmarks NAME``."""
