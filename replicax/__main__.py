"""`python -m replicax`: the command line."""

import sys

from replicax.cli.main import main

sys.exit(main())
