"""Submits, tracks and collects jobs of Slurm."""
