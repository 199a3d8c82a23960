"""Facts of models that several rooms are tested with."""

from __future__ import annotations

from omnipilot_slurm.facts import ModelFacts

LLAMA_8B = ModelFacts(
    id="meta-llama/Llama-3.1-8B",
    family="llama3",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=14336,
    vocab=128256,
    params=8.03e9,
    active_params=8.03e9,
    max_model_len=131072,
)
