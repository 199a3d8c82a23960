"""How many GPUs of which type a job asks for, in all the ways sbatch offers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from script_reading import submitted

from omnipilot_slurm.records import Submission
from omnipilot_slurm.script import directives, tres

#: the options of a job, and (GPUs, type, its source, nodes)
ASKED: dict[str, tuple[Any, Any, Any, int]] = {
    "--gres=gpu:4": (4, None, None, 1),
    "--gres gpu:2": (2, None, None, 1),
    "--gres=gpu": (1, None, None, 1),
    "--gres=gpu:a100": (1, "a100", "gres", 1),
    "--gres=gpu:a100:2": (2, "a100", "gres", 1),
    "--gres=gpu:A100-SXM4:2": (2, "A100-SXM4", "gres", 1),
    "--gres=gpu:a100_80gb:2": (2, "a100_80gb", "gres", 1),
    "--gres=gpu:a100l.3:1": (1, "a100l.3", "gres", 1),
    "--gres=gpu:h100-96:2": (2, "h100-96", "gres", 1),
    "--gres=gpu:1g.10gb:1": (1, "1g.10gb", "gres", 1),
    "--gres=gpu:80gb:2": (2, "80gb", "gres", 1),
    "--gres=gpu:nvidia_h100_80gb_hbm3_1g.10gb:1": (1, "nvidia_h100_80gb_hbm3_1g.10gb", "gres", 1),
    "--gres=gpu:a100:2,tmpfs:100G": (2, "a100", "gres", 1),
    "--gres=nvme:1,gpu:h100:4": (4, "h100", "gres", 1),
    "--gres=gpu:a100:1,gpu:h100:1": (2, None, None, 1),
    "--gres=gpu:a100:1(S:0)": (1, "a100", "gres", 1),
    "--gres='gpu:a100:2'": (2, "a100", "gres", 1),
    '--gres="gpu:2"': (2, None, None, 1),
    "--gres=gpu:0": (0, None, None, 1),
    "--gres=none": (0, None, None, 1),
    "--gres=craynetwork:1": (0, None, None, 1),
    "--gres=gpu:$N": (None, None, None, 1),
    "--gres=gpu:99999999": (None, None, None, 1),
    "--gpus=2": (2, None, None, 1),
    "--gpus 2": (2, None, None, 1),
    "--gpus=h100:2": (2, "h100", "gpus", 1),
    "--gpus=a100:1,h100:1": (2, None, None, 1),
    "-G 2": (2, None, None, 1),
    "-G2": (2, None, None, 1),
    "-G a100:2": (2, "a100", "gpus", 1),
    "-G 8 -N 2": (8, None, None, 2),
    "--gpus-per-node=4": (4, None, None, 1),
    "--gpus-per-node=h200:4": (4, "h200", "gpus-per-node", 1),
    "--gpus-per-node 4 --nodes 2": (8, None, None, 2),
    "--gres=gpu:4 -N2": (8, None, None, 2),
    "--gres=gpu:4 --nodes=2-2": (8, None, None, 2),
    "--gpus-per-task=1": (1, None, None, 1),
    "--gpus-per-task=1 --ntasks=4": (4, None, None, 1),
    "--gpus-per-task=a100:2 -n 2": (4, "a100", "gpus-per-task", 1),
    "--gpus-per-task=1 --ntasks-per-node=4 -N 2": (8, None, None, 2),
    "--gpus-per-task=1 --tasks-per-node=4": (4, None, None, 1),
    "--tres-per-task=gres/gpu:2": (2, None, None, 1),
    "--tres-per-task=cpu=4,gres/gpu:h100=2 -n 2": (4, "h100", "gpus-per-task", 1),
    "--gpus-per-socket=1 --sockets-per-node=2": (None, None, None, 1),
    "--gpus=4 --gres=gpu:a100:4": (4, "a100", "gres", 1),
    "--gpu=4": (0, None, None, 1),
    "--gpus-per-n=4": (4, None, None, 1),
    "--gres=gpu:2 --gres=gpu:4": (4, None, None, 1),
    "-C a100 --gres=gpu:2": (2, "a100", "constraint", 1),
    "--constraint=gpu80&a100 -G 2": (2, "a100", "constraint", 1),
    "--constraint='[a100|h100]' -G 2": (2, None, None, 1),
    "--constraint=!a100 -G 2": (2, None, None, 1),
    "--constraint=intel -G 2": (2, None, None, 1),
    "-p gpu_a100 --gres=gpu:2": (2, "a100", "partition", 1),
    "-p gpuA100x4 -G 4": (4, "a100", "partition", 1),
    "-p h200-preempt -G 2": (2, "h200", "partition", 1),
    "-p gpu-l40s -G 2": (2, "l40s", "partition", 1),
    "-p a100,h100 -G 2": (2, None, None, 1),
    "-p gpu -G 2": (2, None, None, 1),
    "-p ghx4 -G 2": (2, None, None, 1),
    "-p h100 --exclusive": (0, "h100", "partition", 1),
    "-p h100 -C a100 -G 1": (1, "a100", "constraint", 1),
    "-p h100 --gres=gpu:a100:1": (1, "a100", "gres", 1),
    "--exclusive --nodes=1": (0, None, None, 1),
    "--cpus-per-task=8 --mem=0": (0, None, None, 1),
}


@pytest.mark.parametrize("options", ASKED)
def test_a_request_is_read_as_sbatch_does(options: str) -> None:
    submission, form = directives.submission_of(f"#!/bin/sh\n#SBATCH {options}\n:\n".encode())
    request = tres.request_of(submission, node_form=form)
    found = (request.total, request.type, request.type_source, request.n_nodes)
    assert found == ASKED[options]


NAMES = {
    "a100": "a100", "gpu-a100-80g": "a100", "gpu_h100_il": "h100", "dgxa100": None,
    "H100": "h100", "NVIDIA_A40": "a40", "rtx6000ada": "rtx6000ada", "rtx_6000": "rtx_6000",
    "mi300x": "mi300x", "v100s": "v100s", "gpua40x8": "a40", "gh200": "gh200", "a10": "a10",
    "a1000": None, "t4": "t4", "GPU4v100": "v100", "gpu2080ti": "2080ti", "gpu_4090": "4090",
    "4xa100": "a100", "8a100": "a100", "a100-sxm4-80gb": "a100", "A100PCIe": "a100",
    "h100nvl": "h100", "a10080gb": "a100", "a10040": None, "lrz-hgx-h100-94x4": "h100",
    "1080": "1080", "p40": "p40", "sat4": None, "2080ti": "2080ti", "long": None, "": None,
    "a100|a100": "a100",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_spells_a_gpu_or_none(name: str) -> None:
    assert tres.gpu_named_in(name) == NAMES[name]


def test_a_submission_of_slurmctld_is_read_as_well() -> None:
    for prefix in ("gres:", "gres/"):
        submission = Submission(script=b"", tres_per_job=f"{prefix}gpu:h100:4", min_nodes=2)
        request = tres.request_of(submission)
        assert (request.total, request.per_node, request.form) == (4, 2, "gpus")
    submission = Submission(script=b"", tres_per_socket="gres:gpu:1")
    assert tres.request_of(submission).total is None


entries = st.builds(
    tres.Gres,
    name=st.sampled_from(["gpu", "nvme", "craynetwork", "mps"]),
    type=st.none() | st.from_regex(r"[a-z][a-z0-9._-]{0,9}", fullmatch=True),
    count=st.integers(0, 10_000),
)


@given(st.lists(entries, max_size=5))
def test_a_list_is_read_as_it_was_written(gres: list[tres.Gres]) -> None:
    assert tres.parse_gres(",".join(map(str, gres))) == tuple(gres)


@given(st.lists(entries, max_size=5), st.none() | st.just("h100"), st.integers(1, 64))
def test_only_the_gpus_of_a_list_change(
    gres: list[tres.Gres], gpu_type: str | None, count: int
) -> None:
    changed = tres.parse_gres(tres.with_gpus(",".join(map(str, gres)), gpu_type, count))
    assert changed is not None
    assert changed[0] == tres.Gres(name="gpu", type=gpu_type, count=count)
    assert changed[1:] == tuple(entry for entry in gres if entry.name != "gpu")


@given(st.text(max_size=60) | st.text("gpures:=/,()[]x0123456789KkM.-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (tres.parse_gres, tres.parse_gpus):
        found = parse(text)
        assert found is None or all(entry.count >= 0 for entry in found)
    tres.like_form(text, "h100", 2)
    tres.with_gpus(text, "h100", 2)
    tres.gpu_named_in(text)


@pytest.mark.parametrize("text", ["gpu:" + "a" * 2000, ",".join(["gpu:1"] * 2000), "(" * 3000])
def test_texts_longer_than_any_request_are_not_read(text: str) -> None:
    assert tres.parse_gres(text) is None
    assert tres.parse_gpus(text) is None
    assert tres.gpu_named_in(text) is None


FOLLOWING = {
    "SLURM_GPUS": {"2": "4", "h100:2": "h200:4", "gpu:2": "", "a:1,b:1": "", "x y": ""},
    "SLURM_GPUS_PER_NODE": {"2": "4", "h100:2": "h200:4"},
    "SLURM_GPUS_PER_TASK": {"1": "2", "h100:1": "h200:2"},
    "SLURM_GPUS_PER_SOCKET": {"1": ""},
    "SLURM_TRES_PER_TASK": {
        "cpu=4,gres/gpu=1": "cpu=4,gres/gpu=2",
        "gres:gpu:h100:1": "gres:gpu:h200:2",
        "gres/gpu:h100=1": "gres/gpu:h200=2",
        "gres/gpu:x:y:1": "",
    },
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_the_variables_that_steps_read_follow_in_their_form(name: str) -> None:
    for old, new in FOLLOWING[name].items():
        assert tres.step_environment({name: old, "HOME": "/"}, "h200", 4, 2) == {name: new}


def test_variables_that_are_empty_or_cannot_be_split_are_not_filled() -> None:
    assert tres.step_environment({"SLURM_GPUS": ""}, None, 4, 2) == {}
    assert tres.step_environment({"SLURM_GPUS_PER_TASK": "1"}, None, 4, 3) == {
        "SLURM_GPUS_PER_TASK": ""
    }
    assert tres.step_environment({"SLURM_TRES_PER_TASK": "gres/gpu=1"}, None, 4, 3) == {
        "SLURM_TRES_PER_TASK": ""
    }


def test_lines_after_the_first_command_and_disabled_ones_do_not_ask() -> None:
    script = b"#!/bin/sh\n##SBATCH -G 8\n# SBATCH -G 8\n#SBATCH -G 2\necho\n#SBATCH -G 4\n"
    assert tres.request_of(submitted(script)).total == 2
