"""``python -m foretell``: the command line of this Python, whichever comes first on ``PATH``."""

from foretell.cli.main import main

if __name__ == "__main__":
    main()
