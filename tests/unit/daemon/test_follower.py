"""The daemon keeps what users made of proposals, once an hour, also after a store refused."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from decided_store import CHEAPER, row, written

from omnipilot_slurm.cluster.reader import ClusterReader
from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.daemon.follower import EVERY_S, Follower
from omnipilot_slurm.daemon.source import SiteSource
from omnipilot_slurm.records import Mode
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.store.choices import choices_by_kind
from omnipilot_slurm.store.database import open_for_reading

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A move in enforce mode, and its user's `off` a minute later."""
    fields = {"usd_per_token": 0.0, "partition": "h100", "name": "serve", "mode": Mode.ENFORCE}
    off = CHEAPER.replace("#OMNIPILOT auto", "#OMNIPILOT off")
    rows = [row("a", CHEAPER, at=NOW - 600, **fields), row("b", off, at=NOW - 540, **fields)]
    return written(tmp_path / "o.db", rows)


def kept(store: Path) -> dict[str, int]:
    with closing(open_for_reading(store)) as connection:
        return choices_by_kind(connection, 0.0)


def test_choices_are_recorded_and_said(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Follower().follow(store, NOW)
    assert kept(store) == {"opted_out": 1}
    assert [record.getMessage() for record in caplog.records] == [
        f"choices recorded n=1 path={store}"
    ]


def test_the_store_is_read_again_only_after_an_hour(store: Path) -> None:
    follower = Follower()
    follower.follow(store, NOW)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM choices")
    follower.follow(store, NOW + EVERY_S - 1)
    assert kept(store) == {}
    follower.follow(store, NOW + EVERY_S)
    assert kept(store) == {"opted_out": 1}


def test_no_store_is_made_where_there_is_none(tmp_path: Path) -> None:
    Follower().follow(None, NOW)
    Follower().follow(tmp_path / "none.db", NOW)
    assert not (tmp_path / "none.db").exists()


def test_a_store_that_refuses_is_said_once_and_tried_again(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    follower = Follower()
    with closing(sqlite3.connect(store, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        follower.follow(store, NOW)
        follower.follow(store, NOW + EVERY_S)
    follower.follow(store, NOW + 2 * EVERY_S)
    assert [record.getMessage() for record in caplog.records] == [
        f'choices not recorded path={store} fault="database is locked"',
        f"choices recorded n=1 path={store}",
    ]


def test_choices_are_followed_when_the_cluster_is_read_anew(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the site's own source of state; the cluster alone is none."""
    monkeypatch.setattr(ClusterReader, "read", lambda _self, _now: Snapshot(partitions=()))
    monkeypatch.setattr("time.time", lambda: NOW)
    own = f"schema: 1\ndaemon: {{store: {store}}}\n"
    (tmp_path / "omnipilot.yaml").write_text(own)
    source = SiteSource([tmp_path], running=load_settings([tmp_path]).settings.daemon)
    loaded = source.load()
    assert kept(store) == {}
    source.refresh(loaded)
    source.close()
    assert kept(store) == {"opted_out": 1}
