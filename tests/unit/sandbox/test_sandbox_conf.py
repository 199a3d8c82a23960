"""The files of a sandbox: what Slurm reads, and what OmniPilot reads."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.records import Mode
from omnipilot_slurm.sandbox import DEFAULT_NODES, Folders, Pilot, conf, pilot
from omnipilot_slurm.sandbox.conf import MARK, Ports, Site
from omnipilot_slurm.sandbox.folders import check_folder, default_folder
from omnipilot_slurm.settings import load_settings

SITE = Site(
    folders=Folders(Path("/srv/sandbox")),
    nodes=DEFAULT_NODES,
    ports=Ports(base=20_000),
    host="here",
    slurm_user="slurm",
    slurm_version=(24, 11),
    accounting=True,
    lua=True,
    extra_conf=("DebugFlags=Gres",),
)


def test_the_four_nodes_have_gpus_and_partitions_of_their_own():
    lines = conf.slurm_conf(SITE).splitlines()
    nodes = [
        dict(word.split("=", 1) for word in line.split()) for line in lines if " Gres=" in line
    ]
    assert [
        (n["NodeName"], n["Gres"], n["Feature"], n["CPUs"], n["RealMemory"]) for n in nodes
    ] == [
        ("a100n1", "gpu:a100:4", "a100,gpu40g", "64", "512000"),
        ("a100n2", "gpu:a100-80:4", "a100-80,gpu80g", "64", "1024000"),
        ("h100n1", "gpu:h100:4", "h100,gpu80g", "96", "1024000"),
        ("h200n1", "gpu:h200:8", "h200,gpu141g", "128", "2048000"),
    ]
    assert [n["Port"] for n in nodes] == ["20002", "20003", "20004", "20005"]
    assert [line.split()[:3] for line in lines if line.startswith("PartitionName")] == [
        ["PartitionName=a100", "Nodes=a100n1", "Default=YES"],
        ["PartitionName=a100-80", "Nodes=a100n2", "Default=NO"],
        ["PartitionName=h100", "Nodes=h100n1", "Default=NO"],
        ["PartitionName=h200", "Nodes=h200n1", "Default=NO"],
    ]


def test_no_device_file_serves_two_gpus():
    lines = conf.gres_conf(SITE).splitlines()
    assert lines[1] == (
        "NodeName=a100n2 Name=gpu Type=a100-80 File=/srv/sandbox/dev/a100n2/nvidia[0-3]"
    )
    files = [line.partition("File=")[2] for line in lines]
    assert len(set(files)) == len(DEFAULT_NODES)


def test_accounting_tracks_every_gpu_type_and_can_be_switched_off():
    tres = (
        "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:a100-80,gres/gpu:h100,gres/gpu:h200"
    )
    assert tres in conf.slurm_conf(SITE).splitlines()
    without = conf.slurm_conf(replace(SITE, accounting=False, lua=False))
    assert "Accounting" not in without
    assert "JobSubmitPlugins" not in without


def test_extra_lines_come_last_so_that_they_win():
    assert conf.slurm_conf(SITE).endswith("\nDebugFlags=Gres\n")


@pytest.mark.parametrize(("version", "text"), [((22, 5), ""), ((23, 2), "CgroupPlugin=disabled\n")])
def test_cgroups_are_switched_off_where_slurmd_wants_them(version, text):
    assert conf.cgroup_conf(replace(SITE, slurm_version=version)) == text


def exports(root: str, environment: dict[str, str]) -> dict[str, str]:
    script = conf.task_prolog(replace(SITE, folders=Folders(Path(root))))
    printed = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout
    lines = [line.removeprefix("export ") for line in printed.splitlines()]
    return dict(line.split("=", 1) for line in lines)


@given(st.text(st.characters(codec="ascii", exclude_categories=("C",)), min_size=1, max_size=12))
def test_the_task_prolog_quotes_any_folder(name):
    root = f"/srv/{name.replace('/', '_')}"
    found = exports(root, {"PATH": "/bin"})
    assert found["OMNIPILOT_RECORDS"] == f"{Path(root)}/records"
    assert found["PATH"] == f"{Path(root)}/bin:/bin"


def test_the_task_prolog_puts_the_stand_in_first_once():
    assert exports("/srv/x", {"PATH": "/bin", "PYTHONPATH": "/mine"}) == {
        "PATH": "/srv/x/bin:/bin",
        "PYTHONPATH": "/srv/x/python:/mine",
        "SLURM_CONF": "/srv/x/etc/slurm.conf",
        "OMNIPILOT_RECORDS": "/srv/x/records",
        MARK: "/srv/x",
    }
    # a batch script that put its own folder first keeps it first in its steps
    again = exports("/srv/x", {"PATH": "/mine:/srv/x/bin:/bin", "PYTHONPATH": "/srv/x/python"})
    assert "PATH" not in again
    assert "PYTHONPATH" not in again


def test_a_folder_that_other_accounts_cannot_reach_is_refused():
    with tempfile.TemporaryDirectory(dir="/tmp") as closed:
        with pytest.raises(SandboxError) as caught:
            check_folder(Path(closed) / "box")
        assert str(caught.value) == (
            f"sandbox folder must be reachable by every account, was '{closed}/box' "
            f"behind '{closed}', which is closed to others"
        )
        assert caught.value.hint == "choose a folder below /var/cache/omnipilot, or /tmp"
        Path(closed).chmod(0o755)
        check_folder(Path(closed) / "box")


def test_a_folder_of_another_account_is_refused():
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        Path(parent).chmod(0o755)
        link = Path(parent) / "box"
        link.symlink_to("/etc")
        with pytest.raises(SandboxError) as caught:
            check_folder(link)
        assert str(caught.value) == f"sandbox folder must be a folder of root's own, was '{link}'"


def test_a_folder_too_deep_for_a_socket_is_refused():
    folder = Path("/tmp") / ("x" * 90)
    with pytest.raises(SandboxError) as caught:
        check_folder(folder)
    assert str(caught.value) == (
        f"sandbox folder must be at most 61 bytes long, was '/tmp/{'x' * 90}'"
    )


def test_the_default_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("OMNIPILOT_SANDBOX", "/srv/mine")
    assert default_folder() == Path("/srv/mine")
    monkeypatch.delenv("OMNIPILOT_SANDBOX")
    assert default_folder() == Path("/var/cache/omnipilot/sandbox")


def test_the_shipped_job_submit_lua_is_used_with_the_sandboxs_paths():
    files = pilot.lua_files(SITE, Pilot(deadline_ms=50))
    assert set(files) == {"job_submit.lua", "omnipilot.lua"}
    example = files["job_submit.lua"]
    assert 'dofile("/srv/sandbox/etc/omnipilot.lua")' in example
    assert (
        'socket = "/srv/sandbox/omnipilot/omnipilotd.sock", '
        'kill_file = "/srv/sandbox/etc/omnipilot.off"' in example
    )
    assert "deadline_ms = 50" in example
    assert "/etc/slurm/" not in example


def test_omnipilots_settings_fit_its_schema_and_may_be_changed(tmp_path):
    wanted = Pilot(
        mode="advise", settings={"daemon": {"n_workers": 2}, "policy": {"mode": "observe"}}
    )
    (tmp_path / "omnipilot.yaml").write_text(pilot.omnipilot_yaml(SITE, wanted))
    settings = load_settings([tmp_path]).settings
    assert settings.daemon.socket == pilot.socket_path(SITE.folders)
    assert settings.daemon.n_workers == 2
    assert settings.policy.mode is Mode.OBSERVE
    assert settings.cluster.gpu_map.gres == {
        "a100": "a100-40g", "a100-80": "a100-80g", "h100": "h100", "h200": "h200",
    }  # fmt: skip
