"""``python -m foretell.cli``."""

from foretell.cli.main import main

main()
