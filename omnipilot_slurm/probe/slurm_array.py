"""A plan as Slurm job arrays: one for each kind and number of GPUs, since an array asks for one.

In: a plan's open cells and the site's names. Out: texts for sbatch. Pure. Called by
`omnipilot probe plan`.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.probe.plan_file import Plan

#: for the job beside the benchmark: start of Python, ingest, cleaning up
_EXTRA_MIN = 5


def array_scripts(
    plan: Plan,
    open_cells: Sequence[int],
    *,
    folder: str,
    run: Sequence[str],
    gres_types: Mapping[str, str],
    options: Sequence[str] = (),
) -> dict[str, str]:
    """Return a script by file name; tasks of an array run one after another.

    `run` are the words that run a cell, its number comes behind; `gres_types` names GPUs as Slurm
    does; `options` are further lines for sbatch (partition, account).
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for number in open_cells:
        cell = plan.cells[number]
        groups.setdefault((cell.gpu, cell.n_gpus), []).append(number)
    scripts = {}
    for (gpu, n_gpus), numbers in groups.items():
        limit = math.ceil(max(plan.cells[number].max_minutes for number in numbers)) + _EXTRA_MIN
        lines = [
            "#!/bin/bash",
            "#SBATCH --job-name=omnipilot-probe",
            f"#SBATCH --array={','.join(map(str, numbers))}%1",
            f"#SBATCH --gres=gpu:{gres_types.get(gpu, gpu)}:{n_gpus}",
            f"#SBATCH --time={limit}",
            f"#SBATCH --output={folder}/logs/%A_%a.out",
            *(f"#SBATCH {option}" for option in options),
            f'exec {shlex.join(run)} "$SLURM_ARRAY_TASK_ID"',
        ]
        scripts[f"probe-{gpu}-{n_gpus}.sh"] = "\n".join(lines) + "\n"
    return scripts
