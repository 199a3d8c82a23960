"""The systemd unit says what it should in words that systemd knows."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.daemon.daemon import STUCK_S
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

UNIT = shipped_path("etc", "omnipilotd.service")


@pytest.fixture
def service() -> dict[str, str]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]  # keys keep their case
    unit.read(UNIT)
    return dict(unit["Service"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    # the program's own path is the packager's matter
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/omnipilotd", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_runs_without_rights_it_does_not_need(service: dict[str, str]) -> None:
    assert service["User"] == "slurm"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    # with it SO_PEERCRED would show nobody's uid
    assert "PrivateUsers" not in service


def test_its_folders_are_those_of_the_settings(service: dict[str, str]) -> None:
    daemon = load_settings().settings.daemon
    assert daemon.socket.parts[:3] == ("/", "run", service["RuntimeDirectory"])
    assert daemon.store.parts[:4] == ("/", "var", "lib", service["StateDirectory"])
    assert daemon.publish.parts[:4] == ("/", "var", "lib", service["StateDirectory"])
    assert daemon.allowed_users == (service["User"],)


def test_its_times_leave_the_daemon_room(service: dict[str, str]) -> None:
    daemon = load_settings().settings.daemon
    assert float(service["TimeoutStopSec"]) > daemon.stop_timeout_s + 2
    assert float(service["WatchdogSec"]) >= STUCK_S
