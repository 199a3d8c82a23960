"""What is published is readable by all, replaced whole, and reads back as the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.daemon.publish import effective, publish
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

SITE = """
schema: 1
daemon: {socket: /run/elsewhere.sock, allowed_users: [slurmadm]}
cluster:
  poll_s: 30.5
  gpu_map: {gres: {a100: "a100-80g"}, partition: {"10": h100}}
policy: {mode: advise, by_partition: {gpu: enforce}, exempt_accounts: ["true", "größe"]}
workload: {by_partition: {long: {hours: 72, requests_per_s: 2.5}}}
vllm: {version: null, by_partition: {long: "0.10.2"}}
messages: {url: "https://wiki.example/omnipilot"}
"""


def test_the_published_settings_read_back_as_those_in_force(tmp_path: Path) -> None:
    site, public = tmp_path / "site", tmp_path / "public"
    site.mkdir()
    (site / "omnipilot.yaml").write_text(SITE)
    settings, file = load_settings([site])
    publish(public, {"omnipilot.yaml": effective(file)})
    again = load_settings([public]).settings
    assert (again.cluster, again.policy, again.workload, again.vllm, again.messages) == (
        settings.cluster,
        settings.policy,
        settings.workload,
        settings.vllm,
        settings.messages,
    )


def test_how_the_daemon_runs_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "omnipilot.yaml").write_text(SITE)
    text = effective(load_settings([tmp_path]).file)
    assert "elsewhere" not in text
    assert "slurmadm" not in text


def test_everybody_may_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "public"
    publish(folder, {"one.json": "{}", "two.json": "[]"})
    publish(folder, {"one.json": '{"new": 1}'})
    assert sorted(path.name for path in folder.iterdir()) == ["one.json", "two.json"]
    assert (folder / "one.json").read_text() == '{"new": 1}'
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    publish(tmp_path, {"one.json": "old"})
    with pytest.raises(UnicodeEncodeError):
        publish(tmp_path, {"one.json": "\ud800"})
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]
    assert (tmp_path / "one.json").read_text() == "old"
