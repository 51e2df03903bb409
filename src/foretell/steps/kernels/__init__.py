"""Predicts the time of a kernel on any GPU, from the figures of both."""
