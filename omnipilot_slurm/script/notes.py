"""What is noted while the commands of a script pass by, and where one launch stands.

Records only; reader takes the notes, launches and judging read them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script.slurm_environment import DEVICE_LISTS
from omnipilot_slurm.script.words import Value, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.records import Launch
    from omnipilot_slurm.script.frame import Command
    from omnipilot_slurm.script.programs import Kind
    from omnipilot_slurm.script.unwrapped import Unwrapped

#: variables that choose devices, also as container runtimes pass them on
_CHOOSES_DEVICES: Final = re.compile(
    r"^(?:(?:APPTAINER|SINGULARITY)ENV_)?(?:CUDA|HIP|ROCR|NVIDIA)_VISIBLE_DEVICES$"
)


@dataclass(slots=True)
class Notes:
    """What is noted of a script.

    `trace` holds the words of every command that does something, with what a rewrite may change
    taken out: two readings with the same trace run the same commands.
    """

    kinds: list[Kind] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    engine_run: Launch | None = None
    hints: list[str] = field(default_factory=list)
    gpu_work: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    trace: list[tuple[str, ...]] = field(default_factory=list)
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a launch stands: its command, the wrappers around it (outermost first), the hints.

    `n_tasks` is the number of tasks of the job.
    """

    command: Command
    around: tuple[Unwrapped, ...]
    hints: tuple[str, ...] = ()
    n_tasks: int = 1


def pins_devices(variables: Mapping[str, Value]) -> bool:
    """Return whether one of some variables chooses devices other than those of the job."""
    return any(
        _CHOOSES_DEVICES.match(name) is not None and _is_choice(value)
        for name, value in variables.items()
    )


def _is_choice(value: Value) -> bool:
    if value is None:
        return False
    if not isinstance(value, Word):
        return True
    if any(segment.follows for segment in value.segments) or value.text in ("", "all"):
        return False
    if value.text is not None or not value.depends:
        return True
    return not all(name in DEVICE_LISTS or _CHOOSES_DEVICES.match(name) for name in value.depends)
