"""Runs real distributed trainings on one machine and records what they consume; not part of the package."""
