"""Predictions of well-known models on well-known GPUs, against throughputs that others published."""
