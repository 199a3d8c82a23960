"""What the site's own jobs tell reaches every decision of its Site."""

from __future__ import annotations

from omnipilot_slurm.catalog.local import FolderLookup
from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.decide.success import LaunchCounts, LaunchGroup, Outcomes, launch_probability
from omnipilot_slurm.decide.usage import ServedLoad
from omnipilot_slurm.decide.wait_history import WaitGroup, WaitHistory, WaitSample
from omnipilot_slurm.records import Arm
from omnipilot_slurm.site_files import read_files

ARM = Arm(partition="gpu", gpu="h100", gres_type="h100", n_gpus=1, precision="bf16")


def test_launches_waits_and_loads_of_the_site_are_what_it_decides_by() -> None:
    files = read_files([])
    group = LaunchGroup(1, "h100", 1, "bf16", "0.11")
    launches = LaunchCounts(by_group={group: Outcomes(9, 1)})
    waits = WaitHistory(by_group={WaitGroup("gpu", 1, "h100"): WaitSample(4, 2.0, (2.0,))})
    served = [ServedLoad("alice", "nlp", 2000.0, 300.0, 20.0, None)]
    folders = FolderLookup(roots=[])
    site = files.site(Snapshot(partitions=()), folders, files.experience(launches, waits, served))
    assert launch_probability(site.launches, ARM, "0.11.0").n == 10
    assert site.waits.of_all.of("gpu", 1, "h100").n == 4
    found = site.loads.of("alice", None)
    assert found is not None
    assert (found[0], found[1].isl, found[1].n_jobs) == ("user", 2000, 1)


def test_site_without_jobs_of_its_own_assumes() -> None:
    files = read_files([])
    site = files.site(Snapshot(partitions=()), FolderLookup(roots=[]), files.experience())
    assert launch_probability(site.launches, ARM, None).assumed
    assert site.waits.of_all.of("gpu", 1, "h100").assumed
    assert site.loads.of("alice", "nlp") is None
