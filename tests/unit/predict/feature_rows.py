"""A row of the cost model that tests change: Llama-3.1-8B on one H100."""

from __future__ import annotations

from omnipilot_slurm.predict.rows import FeatureRow

BASE = FeatureRow(
    family="llama3",
    gpu="h100",
    vendor="nvidia",
    precision="bf16",
    kv_precision="bf16",
    load_mode="online_closed_loop",
    engine_version="0.11.0",
    params_b=8.0,
    active_params_b=8.0,
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    kv_elems=65536,
    n_experts=1,
    n_active_experts=1,
    latent_kv=0,
    mem_gib=79.0,
    bandwidth_gb_s=3350,
    link_gb_s=450,
    tdp_w=700,
    peak_tflops=989,
    n_gpus=1,
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=1,
    expert_parallel=0,
    isl=1024,
    osl=256,
    concurrency=16,
    vision=0,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    mem_util=0.9,
)
