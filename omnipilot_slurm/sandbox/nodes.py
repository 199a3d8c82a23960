"""The machines that a throwaway Slurm pretends to have.

In: nothing. Out: records that conf.py writes into slurm.conf. Called by Sandbox and its users.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; `gres_type` also names its partition, `gpu_mem_gb` is in its features.

    `gpu` is the catalog id of what `gres_type` stands for.
    """

    name: str
    gres_type: str
    gpu: str
    n_gpus: int
    gpu_mem_gb: int
    cpus: int
    memory_mib: int

    @property
    def features(self) -> tuple[str, ...]:
        """Return what `--constraint` may ask for."""
        return (self.gres_type, f"gpu{self.gpu_mem_gb}g")


DEFAULT_NODES = (
    Node(
        name="a100n1",
        gres_type="a100",
        gpu="a100-40g",
        n_gpus=4,
        gpu_mem_gb=40,
        cpus=64,
        memory_mib=512_000,
    ),
    Node(
        name="a100n2",
        gres_type="a100-80",
        gpu="a100-80g",
        n_gpus=4,
        gpu_mem_gb=80,
        cpus=64,
        memory_mib=1_024_000,
    ),
    Node(
        name="h100n1",
        gres_type="h100",
        gpu="h100",
        n_gpus=4,
        gpu_mem_gb=80,
        cpus=96,
        memory_mib=1_024_000,
    ),
    Node(
        name="h200n1",
        gres_type="h200",
        gpu="h200",
        n_gpus=8,
        gpu_mem_gb=141,
        cpus=128,
        memory_mib=2_048_000,
    ),
)
