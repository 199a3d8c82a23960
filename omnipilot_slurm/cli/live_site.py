"""The site on this cluster as it is now, for commands that run where Slurm's commands do.

In: the folders with the site's settings. Out: a Site. Called by `omnipilot ingest sacct`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.local import FolderLookup
from omnipilot_slurm.cluster.reader import ClusterReader
from omnipilot_slurm.cluster.source import CommandSource
from omnipilot_slurm.site_files import read_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from omnipilot_slurm.decide.site import Site


def live_site(folders: Sequence[Path]) -> Site:
    """Return the site; models are looked up in the catalog alone: a job's folder may be anybody's.

    Raises: ConfigError, ArtifactError, SlurmError.
    """
    files = read_files(folders)
    cluster = files.settings_file.settings.cluster
    source = CommandSource(timeout_s=cluster.command_timeout_s)
    snapshot = ClusterReader(source, slow_poll_s=cluster.slow_poll_s).read(time.time())
    return files.site(snapshot, FolderLookup(roots=[]), files.experience())
