"""Foretell tells what a job will need before it runs, and writes the request for it."""

