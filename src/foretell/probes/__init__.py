"""Old names of modules, for job scripts that were written before November 2026 (up to revision a751fe9).

Such a job may still wait in the queue of a cluster while Foretell is updated.
"""
