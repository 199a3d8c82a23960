"""`omnipilot config` tells all that is wrong at once, and where each value comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.cluster.snapshot_file import FILE, dump_snapshot
from omnipilot_slurm.cluster_facts import NodeShape, NodeState, PartitionFacts, Snapshot
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.site_check import FILES

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOT = Snapshot(
    taken_at=1.0,
    partitions=(
        PartitionFacts(
            name="gpu",
            shapes=(
                NodeShape(
                    n_nodes=2,
                    gpus={"h100": 4},
                    cpus=96,
                    memory_mib=1_000_000,
                    features=frozenset({"nvlink"}),
                ),
            ),
        ),
        PartitionFacts(
            name="old",
            shapes=(
                NodeShape(n_nodes=1, gpus={"v100l": 4}, cpus=40, memory_mib=400_000),
                NodeShape(n_nodes=1, gpus={"dead": 4}, cpus=40, memory_mib=1, state=NodeState.DOWN),
            ),
        ),
    ),
)


def written(folder: Path, **files: str) -> Path:
    """Write files of a site, and have the daemon's snapshot beside them."""
    public = folder / "public"
    public.mkdir(exist_ok=True)
    (public / FILE).write_text(dump_snapshot(SNAPSHOT))
    site = folder / "site"
    site.mkdir(exist_ok=True)
    own = f"daemon: {{publish: {public}}}"
    files = {"omnipilot": "schema: 1"} | files
    files["omnipilot"] += f"\n{own}\n"
    for name, text in files.items():
        (site / f"{name}.yaml").write_text(text)
    return site


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    code = main(["config", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


# check


def test_the_shipped_files_have_no_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, said = run(capsys, "check", "--config", tmp_path)
    assert (code, lines) == (0, [])
    assert said.startswith("faults: 0, warnings: 0; ")


def test_the_faults_of_all_files_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = written(
        tmp_path,
        omnipilot="schema: 1\ncluster: {gpu_map: {gres: {a: h1000}}}",
        utility="schema: 1\nutility: {kv_kneee: 0.8}\n",
        priors="schema: 1\nlaunch: {prior_launches: 2}\nwait: {history_days: 0}\n",
        startup="schema: 1\nweights_frac: [2, 1, 3]\n",
        coldstart="schema: 1\ncold_start: {ready_s: [2, 1, 3]}\n",
        gpus="schema: 1\ngpus: {h100: {capability: null}}\n",
        models="schema: 1\nshapes: {x: {layers: many}}\n",
    )
    code, lines, said = run(capsys, "check", "--config", site)
    assert code == 1
    assert said == (
        f"faults: {len(lines)}, warnings: 0; held against the cluster once there are no faults\n"
    )
    places = [line.removeprefix(f"{site}/").split(" ")[0] for line in lines]
    assert places == sorted(places)
    assert {place.partition(":")[0] for place in places} == {
        "coldstart.yaml", "gpus.yaml", "models.yaml", "omnipilot.yaml", "priors.yaml",
        "startup.yaml", "utility.yaml",
    }  # fmt: skip
    assert (
        f"{site}/utility.yaml:2:11: utility: unknown key 'kv_kneee': did you mean 'kv_knee'"
        in lines
    )
    gpu = "cluster.gpu_map.gres.a: must be a GPU id of gpus.yaml, was 'h1000'; did you mean 'h100'"
    assert [line for line in lines if "h1000" in line] == [f"{site}/omnipilot.yaml:2:31: {gpu}"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_of_a_newer_schema_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("schema: 2\n")
    code, lines, _ = run(capsys, "check", "--config", tmp_path)
    assert code == 1
    what = "must be 1, was 2, which is newer than this release; upgrade omnipilot_slurm"
    assert lines == [f"{tmp_path}/{name}:1:9: schema: {what}"]


def test_names_that_the_cluster_does_not_have_are_doubtful_not_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = written(
        tmp_path,
        omnipilot=(
            "schema: 1\n"
            "policy:\n"
            "  by_partition: {gpu: advise, gpus: enforce}\n"
            "  canary_percent_by_partition: {x: 5}\n"
            "workload: {by_partition: {long: {hours: 2}}}\n"
            "vllm: {by_partition: {z: '0.10.2'}}\n"
            "cluster: {gpu_map: {feature: {nvlin: h100}, gres: {v100l: v100-32g, a: h100}}}"
        ),
    )
    code, lines, said = run(capsys, "check", "--config", site)
    found = dict(
        line.removeprefix(f"{site}/omnipilot.yaml:").split(": warning: ") for line in lines
    )
    assert found == {
        "3:37": "policy.by_partition: the cluster has no partition 'gpus'; did you mean 'gpu'",
        "4:36": "policy.canary_percent_by_partition: the cluster has no partition 'x'",
        "5:33": "workload.by_partition: the cluster has no partition 'long'",
        "6:26": "vllm.by_partition: the cluster has no partition 'z'",
        "7:38": (
            "cluster.gpu_map.feature: the cluster has no feature 'nvlin'; did you mean 'nvlink'"
        ),
        "7:72": "cluster.gpu_map.gres: the cluster has no GPU type 'a'",
    }
    assert code == 0
    assert said == f"faults: 0, warnings: 6; held against {tmp_path}/public/{FILE}\n"


def test_gpus_of_the_cluster_that_nobody_knows_or_priced_are_doubtful(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = written(tmp_path, gpus="schema: 1\ngpus:\n  h100: {price_usd_per_gpu_hour: null}\n")
    code, lines, _ = run(capsys, "check", "--config", site)
    assert code == 0
    said = [line.split(": warning: ") for line in lines]
    priced, known = sorted(said, key=lambda parts: "gpu_map" in parts[1])
    assert priced == [
        f"{site}/gpus.yaml:3:34",
        "gpus.h100.price_usd_per_gpu_hour: has no price, so that it is the last choice",
    ]
    assert known[0].startswith(f"{shipped_path('etc', 'omnipilot.yaml')}:")
    assert known[1] == (
        "cluster.gpu_map: 'v100l' in partition 'old' is no GPU of gpus.yaml, so that jobs there "
        "are let through; say which it is"
    )


def test_a_file_that_nobody_reads_is_doubtful(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "omnipilot.yml").write_text("schema: 1\n")
    (tmp_path / "xyz.yaml").write_text("")
    code, lines, _ = run(capsys, "check", "--config", tmp_path)
    assert code == 0
    assert lines == [
        f"{tmp_path}/omnipilot.yml:1:1: warning: is not read; did you mean omnipilot.yaml",
        f"{tmp_path}/xyz.yaml:1:1: warning: is not read; files are {', '.join(FILES)}",
    ]


def test_a_check_as_json_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "utility.yaml").write_text("schema: 1\nutility: {kv_knee: 2}\n")
    code, lines, _ = run(capsys, "check", "--config", tmp_path, "--json")
    assert code == 1
    assert json.loads("\n".join(lines)) == {
        "faults": [
            {
                "file": f"{tmp_path}/utility.yaml",
                "line": 2,
                "column": 20,
                "message": "utility.kv_knee: must be a number above 0 of at most 0.99, was '2'",
            }
        ],
        "warnings": [],
    }


# print


def test_print_shows_the_sites_own_keys_in_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "omnipilot.yaml").write_text("schema: 1\npolicy: {by_user: {al: advise}}\n")
    (tmp_path / "gpus.yaml").write_text("schema: 1\ngpus: {h100: {price_usd_per_gpu_hour: 2.4}}\n")
    code, lines, _ = run(capsys, "print", "--config", tmp_path)
    assert code == 0
    assert lines == ["policy.by_user.al: advise", "gpus.h100.price_usd_per_gpu_hour: 2.4"]
    _, lines, _ = run(capsys, "print", "--config", tmp_path, "--origin")
    assert lines == [
        f"policy.by_user.al: advise  # {tmp_path}/omnipilot.yaml:2",
        f"gpus.h100.price_usd_per_gpu_hour: 2.4  # {tmp_path}/gpus.yaml:2",
    ]


def test_print_effective_shows_what_holds_and_whose_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "utility.yaml").write_text("schema: 1\nutility: {kv_knee: 0.9}\n")
    _, lines, _ = run(capsys, "print", "--config", tmp_path, "--effective", "--json")
    shown = json.loads("\n".join(lines))
    assert shown["utility.kv_knee"] == {"value": "0.9", "origin": f"{tmp_path}/utility.yaml:2"}
    slope = shown["utility.kv_slope"]
    assert slope["value"] == "0.3"
    assert slope["origin"].startswith(f"{shipped_path('etc', 'utility.yaml')}:")
    assert shown["policy.by_user"]["value"] == "{}"
    assert shown["launch.success_by_gpus.4"]["value"] == "0.90"
    assert shown["cold_start.generations.v1.graphs_s[0]"]["origin"].startswith(
        f"{shipped_path('etc', 'coldstart.yaml')}:"
    )
    assert not [key for key in shown if key.startswith("models.")]


def test_print_says_where_there_is_nothing_of_the_sites_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "print", "--config", tmp_path) == (
        0,
        [],
        f"{tmp_path} has no files with keys of your own; --effective shows what holds\n",
    )


def test_print_refuses_a_file_with_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "utility.yaml").write_text("schema: 1\nutility: 3\n")
    code, lines, said = run(capsys, "print", "--config", tmp_path)
    assert (code, lines) == (1, [])
    assert said.startswith(f"error: {tmp_path}/utility.yaml:2:10: utility: must be a mapping of ")
