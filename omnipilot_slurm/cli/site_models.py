"""The model in force with its card, and the site's rows, as the commands about them find both.

In: the options --config, --store and --models. Out: `InForce`, rows of the store. Called by adapt,
drift and the site's report.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm import site_model
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.site_store import opened
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.store.benchmarks import benchmarks
from omnipilot_slurm.train.site_drift import outcomes
from omnipilot_slurm.train.site_rows import SiteRows, site_rows
from omnipilot_slurm.train.site_update import Learned, learned_of

if TYPE_CHECKING:
    from omnipilot_slurm.predict.drift import Outcome
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.settings import DaemonSettings

models_option = click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the site's models. [default: daemon.model of the settings]",
)


@dataclass(frozen=True, slots=True)
class InForce:
    """The model in force, its folder (None: the shipped one), and what it has learned."""

    model: CostModel
    folder: Path | None
    learned: Learned


def model_in_force(folder: Path | None) -> InForce:
    """Return the model in force of a folder of models, the shipped one where there is none.

    Raises: ArtifactError.
    """
    own = None if folder is None else site_model.in_force(folder)
    model, card = artifact.read(own or shipped_path("etc", "artifact"))
    return InForce(model, own, learned_of(card))


def existing_store(store: Path | None, settings: DaemonSettings) -> Path | None:
    """Return the database, None where the site has none yet; one that is named must be there."""
    if store is not None or settings.store is None:
        return store
    return settings.store if settings.store.exists() else None


def rows_of_store(store: Path | None) -> SiteRows:
    """Return the rows that a database holds; none where there is no database."""
    if store is None:
        return SiteRows(None, (), 0)
    with opened(store) as connection:
        return site_rows(benchmarks(connection), Catalog.load())


def live_outcomes(rows: SiteRows, found: InForce) -> list[Outcome]:
    """Return what was measured since the model in force was made, against what it says."""
    if rows.data is None:
        return []
    return outcomes(found.model, rows.data, rows.measured_at, found.learned)
