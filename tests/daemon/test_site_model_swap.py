"""A site's new cost model comes into force while calls go on: none is dropped, none fails."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from daemon_process import DaemonProcess

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.site_model import promote, roll_back, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = "#SBATCH --gres=gpu:h100:1\nvllm serve Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture
def real(folder: Path) -> Iterator[DaemonProcess]:
    """omnipilotd itself; there is no Slurm here, so its cluster stays empty."""
    daemon = DaemonProcess(folder)
    daemon.settings["model"] = str(folder / "models")
    daemon.settings["n_cached_answers"] = 0
    daemon.start(
        command=[sys.executable, "-m", "omnipilot_slurm.daemon.main", "--config", str(folder)]
    )
    yield daemon
    if daemon.process is not None and daemon.process.poll() is None:
        daemon.process.kill()
        daemon.process.wait()


class Caller(threading.Thread):
    """Asks again and again until it is told to stop."""

    def __init__(self, daemon: DaemonProcess) -> None:
        super().__init__()
        self.daemon_process = daemon
        self.done = threading.Event()
        self.verdicts: list[object] = []

    def run(self) -> None:
        while not self.done.is_set():
            self.verdicts.append(self.daemon_process.decide(SCRIPT).get("verdict"))


def test_a_promoted_model_and_its_rollback_are_swapped_in_under_load(
    real: DaemonProcess, folder: Path
) -> None:
    models = folder / "models"
    model, _ = artifact.read(shipped_path("etc", "artifact"))
    caller = Caller(real)
    caller.start()
    seen = []
    try:
        seen.append(real.status()["state"]["site_model"])
        with writing(models):
            promote(models, replace(model), {})
        assert real.ask(op="reload")["ok"]
        seen.append(real.status()["state"]["site_model"])
        with writing(models):
            roll_back(models)
        assert real.ask(op="reload")["ok"]
        seen.append(real.status()["state"]["site_model"])
    finally:
        caller.done.set()
        caller.join()
    assert seen == [None, str(models / "1"), None]
    assert len(caller.verdicts) > 10
    assert set(caller.verdicts) == {caller.verdicts[0]}
    assert caller.verdicts[0] is not None
