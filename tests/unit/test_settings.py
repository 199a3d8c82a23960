"""omnipilot.yaml says what the site wants, in layers, or exactly where it does not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Mode
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.settings import SPEC, load_settings
from omnipilot_slurm.site_settings import WorkloadDefaults
from omnipilot_slurm.strict_yaml import MapOf, Nullable, Section


def faults_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "omnipilot.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings([tmp_path])
    return [str(fault).removeprefix(f"{path}:") for fault in caught.value.faults]


def test_without_a_site_file_nothing_is_said_or_changed() -> None:
    settings = load_settings().settings
    assert settings.policy.mode is Mode.OBSERVE
    assert not {*settings.policy.by_partition, *settings.policy.by_user}
    assert settings.daemon.socket == Path("/run/omnipilot/omnipilotd.sock")
    assert settings.daemon.allowed_users == ("slurm",)


def test_a_folder_without_a_file_changes_nothing(tmp_path: Path) -> None:
    assert load_settings([tmp_path]).settings == load_settings().settings


def test_a_site_writes_only_what_differs_and_later_folders_win(tmp_path: Path) -> None:
    for name, text in {
        "one": "daemon: {group: ops, store: null}\npolicy: {mode: advise, by_user: {al: observe}}",
        "two": "policy: {by_partition: {gpu: enforce}, mode: observe}",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "omnipilot.yaml").write_text(f"schema: 1\n{text}\n")
    settings = load_settings([tmp_path / "one", tmp_path / "two"]).settings
    assert (settings.daemon.group, settings.daemon.store) == ("ops", None)
    assert settings.policy.mode is Mode.OBSERVE
    assert settings.policy.by_user == {"al": Mode.OBSERVE}
    assert settings.policy.by_partition == {"gpu": Mode.ENFORCE}
    assert settings.daemon.n_workers == load_settings().settings.daemon.n_workers


def test_no_version_of_the_engine_is_claimed_unless_the_site_says_one(tmp_path: Path) -> None:
    assert load_settings().settings.vllm.version is None
    (tmp_path / "omnipilot.yaml").write_text('schema: 1\nvllm: {version: "0.10.2"}\n')
    assert load_settings([tmp_path]).settings.vllm.version == "0.10.2"


def test_a_partitions_workload_says_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "omnipilot.yaml").write_text(
        "schema: 1\nworkload: {by_partition: {long: {hours: 72}}}\n"
    )
    workload = load_settings([tmp_path]).settings.workload
    assert workload.by_partition == {"long": WorkloadDefaults(hours=72)}


def test_every_key_of_the_shipped_file_is_explained_above_it() -> None:
    lines = shipped_path("etc", "omnipilot.yaml").read_text(encoding="utf-8").splitlines()
    unexplained = {
        line.strip()
        for above, line in pairwise(lines)
        if line and not line.lstrip().startswith("#") and not above.lstrip().startswith("#")
    }
    # what the comment of the section, or of the key before, says as well
    assert unexplained == {
        "mode: observe",
        "exempt_accounts: []",
        "default:",
        "osl: 256",
    }


def test_the_shipped_file_sets_every_key_that_there_is() -> None:
    shipped = yaml.safe_load(shipped_path("etc", "omnipilot.yaml").read_text(encoding="utf-8"))

    def missing(spec: object, value: object, path: str) -> list[str]:
        if isinstance(spec, Nullable | MapOf) or not isinstance(spec, Section):
            return []
        return [
            where
            for key, inner in spec.keys.items()
            for where in (
                missing(inner, value[key], f"{path}.{key}") if key in value else [f"{path}.{key}"]
            )
        ]

    assert missing(SPEC, shipped, "") == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "schema: 1\npolicy: {moed: advise}\n",
            ["2:10: policy: unknown key 'moed': did you mean 'mode'"],
            id="a misspelt key",
        ),
        pytest.param(
            "schema: 1\npolicy: {mode: enforced}\n",
            [
                (
                    "2:16: policy.mode: must be one of observe, advise, enforce, was 'enforced'; "
                    "did you mean 'enforce'"
                )
            ],
            id="a mode that does not exist",
        ),
        pytest.param(
            "schema: 1\ndaemon: {socket: omnipilotd.sock}\n",
            ["2:18: daemon.socket: must be an absolute path, was 'omnipilotd.sock'"],
            id="a relative socket",
        ),
        pytest.param(
            "schema: 1\ndaemon: {n_workers: 1}\n",
            ["2:21: daemon.n_workers: must be a whole number from 2 to 64, was '1'"],
            id="one worker, which a reload would occupy",
        ),
        pytest.param(
            "schema: 1\ndaemon: {allowed_users: slurm}\n",
            [
                (
                    "2:25: daemon.allowed_users: must be a list, each a user name, was 'slurm'; "
                    "put it in [ ]"
                )
            ],
            id="a user without a list",
        ),
        pytest.param(
            "schema: 1\nvllm: {version: 0.10}\n",
            [
                (
                    "2:17: vllm.version: must be a version in quotes, such as '0.11.0', "
                    "was '0.10'; "
                    'YAML 1.1 reads it as a number; write "0.10" in quotes'
                )
            ],
            id="a version that reads as a number",
        ),
        pytest.param(
            "schema: 1\ncluster: {poll_s: 1}\nmessages: {url: wiki}\n",
            [
                "2:19: cluster.poll_s: must be a number from 5 to 86400, was '1'",
                "3:17: messages.url: must be an http(s) address, was 'wiki'",
            ],
            id="two faults, both told",
        ),
        pytest.param(
            "schema: 1\npolicy: {canary_percent_by_partition: {g: 110}, rewrite_confidence: 0.2}\n",
            [
                (
                    "2:43: policy.canary_percent_by_partition.g: must be a number from 0 to 100, "
                    "was '110'"
                ),
                "2:69: policy.rewrite_confidence: must be a number from 0.5 to 0.999, was '0.2'",
            ],
            id="more than all, and less sure than a coin",
        ),
        pytest.param(
            "policy: {mode: advise}\n",
            ["1:1: has no schema version; write `schema: 1` at the top"],
            id="no schema version",
        ),
    ],
)
def test_is_refused_at_its_place(text: str, faults: list[str], tmp_path: Path) -> None:
    assert faults_of(tmp_path, text) == faults


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "omnipilot.yaml").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_settings([tmp_path])
    assert str(caught.value) == f"{tmp_path}/omnipilot.yaml:1:1: cannot be read: Is a directory"
