"""A stand-in for vLLM in the jobs of a sandbox: notes how it was started, and exits.

In: its own command line and environment. Out: one JSON file in $OMNIPILOT_RECORDS. The sandbox
installs this one file as `vllm` on the PATH and as the modules of the package `vllm` that batch
scripts run with `python -m`. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import time
from pathlib import Path

__version__ = "0.0.0+sandbox"


def main() -> None:
    """Write what this process was given; the file appears whole or not at all."""
    environment = os.environ
    module = __spec__.name if __spec__ else "vllm"
    record = {
        "argv": [module, *sys.argv[1:]],
        "cuda_visible_devices": environment.get("CUDA_VISIBLE_DEVICES"),
        "slurm": {key: value for key, value in environment.items() if key.startswith("SLURM_")},
        "job_id": int(environment.get("SLURM_JOB_ID", "0")),
        "step_id": environment.get("SLURM_STEP_ID"),
        "node": environment.get("SLURMD_NODENAME"),
        "host": socket.gethostname(),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "started_unix_s": time.time(),
    }
    path = Path(environment["OMNIPILOT_RECORDS"], f"{time.time_ns()}-{os.getpid()}.json")
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(record))
    unfinished.rename(path)


if __name__ == "__main__":
    main()
