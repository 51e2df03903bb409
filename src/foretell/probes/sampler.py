"""The old name of :mod:`foretell.measure.job_sampler`."""

import sys

from foretell.measure.job_sampler import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
