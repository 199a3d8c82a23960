"""The physics estimate: closed form, monotone where physics is, saturating at the KV room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from known_models import LLAMA_8B

from omnipilot_slurm.facts import GpuFacts
from omnipilot_slurm.predict.roofline import estimate
from omnipilot_slurm.records import Arm, Workload

H100 = GpuFacts(
    id="h100",
    name="H100",
    vendor="nvidia",
    mem_gib=79.18,
    bandwidth_gb_s=3350,
    peak_tflops={"bf16": 989, "fp8": 1979},
    link_gb_s=450,
    tdp_w=700,
    capability=(9, 0),
    price_usd_per_gpu_hour=3.0,
)
ARM = Arm(partition="h100", gpu="h100", gres_type="h100", n_gpus=1)
LOAD = Workload(isl=1024, osl=256, concurrency=32)


def test_figures_of_one_estimate_agree_with_each_other() -> None:
    values = estimate(LLAMA_8B, H100, ARM, LOAD)
    e2e_s = values["e2e_ms"] / 1e3
    assert values["req_s"] * e2e_s == pytest.approx(LOAD.concurrency)
    assert values["output_tok_s"] == pytest.approx(values["req_s"] * LOAD.osl)
    assert values["total_tok_s"] == pytest.approx(values["req_s"] * (LOAD.isl + LOAD.osl))
    served_ms = values["ttft_ms"] + (LOAD.osl - 1) * values["tpot_ms"]
    assert values["e2e_ms"] == pytest.approx(served_ms)


def test_an_8b_model_on_an_h100_lands_where_public_measurements_are() -> None:
    values = estimate(LLAMA_8B, H100, ARM, LOAD)
    assert 1500 < values["output_tok_s"] < 4500
    assert 5 < values["tpot_ms"] < 20


@pytest.mark.parametrize("fact", ["bandwidth_gb_s", "link_gb_s"])
def test_faster_hardware_is_never_slower(fact: str) -> None:
    faster = replace(H100, **{fact: 2 * getattr(H100, fact)})
    arm = replace(ARM, n_gpus=2, tensor_parallel=2)
    before = estimate(LLAMA_8B, H100, arm, LOAD)
    after = estimate(LLAMA_8B, faster, arm, LOAD)
    assert after["output_tok_s"] > before["output_tok_s"]
    assert after["tpot_ms"] < before["tpot_ms"]


def test_throughput_saturates_at_the_kv_room_and_the_wait_shows_in_ttft() -> None:
    crowd = replace(LOAD, concurrency=128)
    roomy = estimate(LLAMA_8B, H100, ARM, crowd, kv_capacity_tokens=1e6)
    tight = estimate(LLAMA_8B, H100, ARM, crowd, kv_capacity_tokens=32 * (1024 + 128))
    alone = estimate(LLAMA_8B, H100, ARM, LOAD, kv_capacity_tokens=32 * (1024 + 128))
    assert tight["output_tok_s"] == pytest.approx(alone["output_tok_s"])
    assert tight["output_tok_s"] < roomy["output_tok_s"]
    assert tight["ttft_ms"] > 3 * roomy["ttft_ms"]


def test_max_num_seqs_caps_the_running_batch() -> None:
    crowd = replace(LOAD, concurrency=128)
    capped = estimate(LLAMA_8B, H100, ARM, crowd, max_num_seqs=32)
    assert capped["output_tok_s"] == pytest.approx(
        estimate(LLAMA_8B, H100, ARM, LOAD)["output_tok_s"]
    )


def test_eight_bit_weights_speed_up_a_memory_bound_step() -> None:
    fp8 = replace(ARM, precision="fp8")
    small = replace(LOAD, concurrency=1)
    assert (
        estimate(LLAMA_8B, H100, fp8, small)["tpot_ms"]
        < estimate(LLAMA_8B, H100, ARM, small)["tpot_ms"]
    )
