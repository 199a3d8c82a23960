"""Everything that a sandbox has on disk: folders, keys, configuration, devices, the stand-in.

In: what the sandbox is to be. Out: whether the configuration differs from what was there.
Called by Sandbox.up, as root.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox import conf
from omnipilot_slurm.sandbox import pilot as pilots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.sandbox.conf import Site
    from omnipilot_slurm.sandbox.folders import Folders
    from omnipilot_slurm.sandbox.pilot import Pilot

#: a GPU is a device like /dev/null
_NULL_DEVICE = os.makedev(1, 3)
_SYSTEM_PYTHON = Path("/usr/bin/python3")
#: the modules of vLLM that batch scripts start, and the package itself
_VLLM_MODULES = ("__init__", "entrypoints/openai/api_server", "entrypoints/cli/main")


def install(site: Site, plugin: Path | None, pilot: Pilot | None) -> bool:
    """Write everything; True when a file that Slurm or omnipilotd reads is not as it was.

    Raises: SandboxError when this machine allows no device files.
    """
    with open_to_others():
        _make_folders(site)
        _make_key(site.folders.munge / "munge.key")
        _make_devices(site)
        _install_stand_in(site.folders)
        return _write_etc(site, plugin, pilot)


@contextmanager
def open_to_others() -> Iterator[None]:
    """Create files that jobs of other users can reach, whatever the caller's umask."""
    umask = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(umask)


def _make_folders(site: Site) -> None:
    folders = site.folders
    for path in (folders.etc, folders.running, folders.munge, folders.mysql, folders.scratch):
        path.mkdir(parents=True, exist_ok=True)
    for path in (folders.log, folders.state, folders.state / "ctld"):
        path.mkdir(exist_ok=True)
        shutil.chown(path, site.slurm_user)
    for node in site.nodes:
        (folders.state / "spool" / node.name).mkdir(parents=True, exist_ok=True)
        (folders.devices / node.name).mkdir(parents=True, exist_ok=True)
    folders.records.mkdir(exist_ok=True)
    # jobs of any user write their records here, and nobody removes another's
    folders.records.chmod(0o1777)


def _make_key(path: Path) -> None:
    if path.exists():
        return
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(128))


def _make_devices(site: Site) -> None:
    for node in site.nodes:
        for index in range(node.n_gpus):
            path = site.folders.devices / node.name / f"nvidia{index}"
            if path.exists():
                continue
            try:
                os.mknod(path, stat.S_IFCHR | 0o666, _NULL_DEVICE)
            except OSError as error:
                raise SandboxError(
                    f"{path}: must become a character device, was refused: {error.strerror}",
                    hint="run where root may make device files (in a container: CAP_MKNOD)",
                ) from error
            path.chmod(0o666)


def _install_stand_in(folders: Folders) -> None:
    """Put `vllm`, `python` and the package `vllm` where the jobs find them."""
    for path in (folders.bin, folders.python):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    interpreter = _SYSTEM_PYTHON if _SYSTEM_PYTHON.exists() else Path(sys.executable).resolve()
    source = files("omnipilot_slurm.sandbox").joinpath("vllm_stand_in.py").read_text()
    executable = folders.bin / "vllm"
    executable.write_text(f"#!{interpreter}\n{source}")
    executable.chmod(0o755)
    (folders.bin / "python").symlink_to(interpreter)
    for module in _VLLM_MODULES:
        link = folders.python / "vllm" / f"{module}.py"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(executable)


def _write_etc(site: Site, plugin: Path | None, pilot: Pilot | None) -> bool:
    """Write what the daemons read; True when any of it changed."""
    etc = site.folders.etc
    texts = {
        "slurm.conf": (conf.slurm_conf(site), 0o644),
        "gres.conf": (conf.gres_conf(site), 0o644),
        "cgroup.conf": (conf.cgroup_conf(site), 0o644),
        "task-prolog": (conf.task_prolog(site), 0o755),
    }
    if site.accounting:
        texts["slurmdbd.conf"] = (conf.slurmdbd_conf(site), 0o600)
    if plugin is not None:
        texts.update({path.name: (path.read_text(), 0o644) for path in plugin.glob("*.lua")})
    if pilot is not None:
        folder = site.folders.pilot
        folder.mkdir(exist_ok=True)
        shutil.chown(folder, pilots.owner(site))
        texts |= {name: (text, 0o644) for name, text in pilots.lua_files(site, pilot).items()}
        texts[str(folder / "omnipilot.yaml")] = (pilots.omnipilot_yaml(site, pilot), 0o644)
    changed = [_write(etc / name, text, mode) for name, (text, mode) in texts.items()]
    if site.accounting:
        shutil.chown(etc / "slurmdbd.conf", site.slurm_user)
    return any(changed)


def _write(path: Path, text: str, mode: int) -> bool:
    if path.exists() and path.read_text() == text:
        return False
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(text)
    return True
