"""Models that learn from the operators of training steps."""
