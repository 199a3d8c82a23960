"""omnipilotd as it is installed: its command line, what it loads, what it weighs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import PATIENCE_S, DaemonProcess, wait_until

from omnipilot_slurm import __version__
from omnipilot_slurm.site_files import read_files
from omnipilot_slurm.utility_file import load_utility

MODULE = [sys.executable, "-m", "omnipilot_slurm.daemon.main"]
MAX_RSS_KIB = 60 * 1024
#: what takes longer to load than the daemon may take to start
HEAVY = {"sklearn", "scipy", "pandas", "click", "joblib", "matplotlib", "jinja2"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.fixture
def installed(stopped: DaemonProcess) -> DaemonProcess:
    """omnipilotd with the site's own source of state."""
    stopped.start(command=[*MODULE, "--config", str(stopped.folder)])
    return stopped


def test_the_version_is_told() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"omnipilotd {__version__}\n")


def test_every_option_is_in_the_help() -> None:
    text = run("--help").stdout
    assert all(option in text for option in ("--config DIR", "--socket PATH", "--version"))


def test_an_unknown_option_is_a_usage_error() -> None:
    done = run("--sock", "/tmp/x")
    assert done.returncode == 2
    assert "unrecognized arguments: --sock /tmp/x" in done.stderr


def test_a_configuration_with_faults_stops_the_start_and_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "omnipilot.yaml"
    path.write_text("schema: 1\ndaemon: {n_workers: no, sockte: /run/x}\n")
    done = run("--config", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"omnipilotd: {path}:2:21: daemon.n_workers: must be a whole number from 2 to 64, "
        "was 'no'; "
        "YAML 1.1 reads it as false; write the digits in decimal\n"
        f"{path}:2:25: daemon: unknown key 'sockte': did you mean 'socket'\n"
    )


def test_a_socket_on_the_command_line_wins(stopped: DaemonProcess) -> None:
    configured = stopped.settings["socket"]
    stopped.socket = stopped.folder / "other.sock"
    stopped.start(
        command=[*MODULE, "--config", str(stopped.folder), "--socket", str(stopped.socket)]
    )
    status = stopped.status()
    assert (status["socket"], status["state"]["restart_needed"]) == (str(stopped.socket), False)
    assert configured != status["socket"]


def test_later_folders_of_configuration_win(stopped: DaemonProcess, tmp_path: Path) -> None:
    over = tmp_path / "over"
    over.mkdir()
    (over / "omnipilot.yaml").write_text("schema: 1\ndaemon: {store: null}\n")
    stopped.start(command=[*MODULE, "--config", str(stopped.folder), "--config", str(over)])
    assert stopped.status()["store"] == {"path": None}


def test_a_bad_configuration_on_reload_keeps_the_old_and_lists_the_faults(
    installed: DaemonProcess,
) -> None:
    path = installed.folder / "omnipilot.yaml"
    good = path.read_text()
    path.write_text("schema: 1\npolicy: {mode: enforced}\n")
    fault = (
        f"{path}:2:16: policy.mode: must be one of observe, advise, enforce, was 'enforced'; "
        "did you mean 'enforce'"
    )
    assert installed.ask(op="reload")["error"] == {"code": "reload", "text": fault}
    assert installed.status()["state"]["fault"] == fault
    assert installed.decide("true")["verdict"] == "pass"
    path.write_text(good)
    assert installed.ask(op="reload") == {"v": 1, "ok": True}
    assert installed.status()["state"]["fault"] is None


def test_a_file_of_a_newer_release_on_reload_says_what_to_do(installed: DaemonProcess) -> None:
    path = installed.folder / "utility.yaml"
    path.write_text("schema: 2\nutility: {wait_usd_per_hour: 3}\n")
    fault = (
        f"{path}:1:9: schema: must be 1, was 2, which is newer than this release; "
        "upgrade omnipilot_slurm"
    )
    assert installed.ask(op="reload")["error"] == {"code": "reload", "text": fault}
    path.write_text("schema: 1\nutility: {wait_usd_per_hour: 3}\n")
    assert installed.ask(op="reload") == {"v": 1, "ok": True}
    assert installed.status()["state"]["fault"] is None


def test_a_change_that_needs_a_restart_is_said(installed: DaemonProcess) -> None:
    assert installed.status()["state"]["restart_needed"] is False
    path = installed.folder / "omnipilot.yaml"
    changed = json.loads(path.read_text())
    changed["daemon"]["n_workers"] = 9
    path.write_text(json.dumps(changed))
    installed.ask(op="reload")
    assert installed.status()["state"]["restart_needed"] is True


def test_the_settings_in_force_are_published(installed: DaemonProcess) -> None:
    path = installed.public / "omnipilot.yaml"
    wait_until(path.exists, "the published settings")
    assert '"mode": "observe"' in path.read_text()
    assert str(installed.socket) not in path.read_text()


def test_a_login_node_advises_by_what_the_site_has_set(
    installed: DaemonProcess,
) -> None:
    site = installed.folder / "utility.yaml"
    site.write_text("schema: 1\nutility: {wait_usd_per_hour: 7.5}\n")
    assert installed.ask(op="reload") == {"v": 1, "ok": True}
    published = installed.public / "utility.yaml"
    wait_until(published.exists, "the site's own utility.yaml")
    assert load_utility([installed.public]).wait_usd_per_hour == 7.5
    snapshot = read_files([installed.public]).published()
    assert snapshot is not None
    assert snapshot.file == str(installed.public / "cluster.json")
    site.unlink()
    assert installed.ask(op="reload") == {"v": 1, "ok": True}
    wait_until(lambda: not published.exists(), "what is in force no more to be taken away")


def test_the_daemon_loads_nothing_heavy() -> None:
    code = (
        "import sys, omnipilot_slurm.daemon.main, omnipilot_slurm.daemon.source\n"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "omnipilot_slurm" in loaded
    assert not loaded & HEAVY


def test_a_daemon_that_has_answered_stays_light(installed: DaemonProcess) -> None:
    for n in range(300):
        installed.decide(f"vllm serve model-{n} --port {n}\n" + "# filler\n" * 500)
    process = Path("/proc") / str(installed.process.pid)
    status = (process / "status").read_text()
    rss_kib = int(status.partition("VmRSS:")[2].split()[0])
    maps = (process / "maps").read_text()
    assert rss_kib < MAX_RSS_KIB
    assert not any(f"/{name}/" in maps for name in HEAVY)
