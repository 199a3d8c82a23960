"""`python -m omnipilot_slurm`: the `omnipilot` command where its script is not on the PATH."""

from __future__ import annotations

import sys

from omnipilot_slurm.cli.main import main

sys.exit(main())
