"""From files to what is learned on: CSV rows of the tidy schema with the catalog's GPU facts.

In: paths. Out: measurements or a `Dataset`. Called by the commands train, evaluate, predict and
report, and by benchmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.train.dataset import Dataset, dataset
from omnipilot_slurm.train.schema import Reading, read_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from omnipilot_slurm.facts import GpuFacts


def gpu_finder() -> Callable[[str, float], GpuFacts]:
    """Return the look-up of a GPU by name and the memory in GB it is sold with."""
    catalog = Catalog.load()

    def find(name: str, mem_gb: float) -> GpuFacts:
        return catalog.gpu(name, mem_gb=mem_gb)

    return find


def load_dataset(paths: Sequence[Path], say: Callable[[str], None]) -> Dataset:
    """Read, check and merge the vLLM rows of CSV files; `say` gets remarks and counts."""
    reading = read_csv(paths)
    tell(reading, say)
    data = dataset(reading.rows, gpu_finder())
    say(f"{len(data)} after merging repeats, {len(set(data.groups['cell'].tolist()))} cells")
    return data


def tell(reading: Reading, say: Callable[[str], None]) -> None:
    """Say what a reading found."""
    for remark in reading.remarks:
        say(remark)
    say(f"{len(reading.rows)} rows of vLLM, {reading.n_other_engines} of other engines left out")
