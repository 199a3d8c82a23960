"""A real Slurm for tests. Without one installed these tests fail; they never skip."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.sandbox import Sandbox
from omnipilot_slurm.sandbox.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def make_sandbox() -> Iterator[Callable[..., Sandbox]]:
    """Sandboxes in folders and on ports of their own, gone at the end: make_sandbox(plugin=...).

    The folders are not below pytest's own, which is closed to the accounts that jobs run as.
    """
    made: list[Sandbox] = []

    def make(**settings: object) -> Sandbox:
        folder = Path(tempfile.mkdtemp(prefix="omnipilot-slurm-"))
        folder.chmod(0o755)
        made.append(Sandbox(folder, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.down()
        shutil.rmtree(sandbox.folders.root)


@pytest.fixture(scope="session")
def slurm(make_sandbox: Callable[..., Sandbox]) -> Sandbox:
    """A running sandbox without a plugin, with accounting where that is installed."""
    sandbox = make_sandbox()
    sandbox.up()
    return sandbox


@pytest.fixture(scope="session")
def pilot_site(make_sandbox: Callable[..., Sandbox]) -> Sandbox:
    """The sandbox as `omnipilot sandbox up` makes it: the shim, omnipilotd, enforce mode."""
    sandbox = make_sandbox(pilot=Pilot())
    sandbox.up()
    return sandbox
