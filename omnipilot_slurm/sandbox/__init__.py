"""A throwaway Slurm on one machine, to try things on before touching a cluster."""

from omnipilot_slurm.sandbox.folders import Folders, default_folder
from omnipilot_slurm.sandbox.jobs import Job, Submitted, VllmStart
from omnipilot_slurm.sandbox.nodes import DEFAULT_NODES, Node
from omnipilot_slurm.sandbox.pilot import Pilot
from omnipilot_slurm.sandbox.sandbox import DaemonStatus, Sandbox

__all__ = [
    "DEFAULT_NODES",
    "DaemonStatus",
    "Folders",
    "Job",
    "Node",
    "Pilot",
    "Sandbox",
    "Submitted",
    "VllmStart",
    "default_folder",
]
