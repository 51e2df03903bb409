"""Runs of an application: planned, made, resumed."""
