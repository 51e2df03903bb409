"""Records the first training step of a user's command, without a change to its script and without a GPU."""
