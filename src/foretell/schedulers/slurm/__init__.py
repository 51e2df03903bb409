"""Everything that knows a word of Slurm."""
