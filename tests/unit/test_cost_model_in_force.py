"""What the daemon reads at each poll: the site's model when another one came into force."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.site_files import read_files
from omnipilot_slurm.site_model import promote, roll_back, writing

if TYPE_CHECKING:
    from pathlib import Path


def test_a_poll_takes_the_model_that_came_into_force_and_nothing_else(tmp_path: Path) -> None:
    models = tmp_path / "models"
    settings = {"schema": 1, "daemon": {"model": str(models)}}
    (tmp_path / "omnipilot.yaml").write_text(json.dumps(settings))
    first = read_files([tmp_path])
    assert first.cost_model.folder is None
    assert first.with_model_in_force() is first

    model, _ = artifact.read(shipped_path("etc", "artifact"))
    with writing(models):
        promote(models, model, {})
    second = first.with_model_in_force()
    assert second.cost_model.folder == models / "1"
    assert second.predictor is not first.predictor
    assert second.catalog is first.catalog
    assert second.with_model_in_force() is second

    with writing(models):
        roll_back(models)
    assert second.with_model_in_force().cost_model.folder is None
