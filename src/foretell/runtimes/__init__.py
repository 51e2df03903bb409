"""Time and memory of an application, learned from its runs."""
