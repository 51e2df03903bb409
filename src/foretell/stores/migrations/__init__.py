"""How the store's tables came to be, one file in ``versions/`` for each change."""
