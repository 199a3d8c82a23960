"""The shim under each Lua that a slurmctld may be built with."""

from __future__ import annotations

import pytest
from fake_slurmctld import LUA_VERSIONS, FakeSlurmctld


@pytest.fixture(params=LUA_VERSIONS)
def slurmctld(request: pytest.FixtureRequest) -> FakeSlurmctld:
    """A fake slurmctld with lua/omnipilot.lua loaded, its settings the defaults."""
    return FakeSlurmctld(request.param)
