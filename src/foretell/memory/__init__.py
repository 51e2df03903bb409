"""Predicts the memory of a step on a GPU, from the blocks that it allocates and frees."""
