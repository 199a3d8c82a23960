"""What vLLM does when an option is not given, by version, GPU and way of starting it.

In: a version string (None: not known) and, where it matters, the GPU's memory and name. Out: a
Default: the value, or the values that the versions in question differ in. Called by the launch
checks, the memory plan, the features and the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from omnipilot_slurm.vllm.grammar import candidates, since

T = TypeVar("T", int, float, str, bool, None)


@dataclass(frozen=True, slots=True)
class Default(Generic[T]):
    """The values an option may have when it is not given; certain when there is just one."""

    values: tuple[T, ...]

    @property
    def certain(self) -> bool:
        """Whether all versions in question have the same value."""
        return len(self.values) == 1


def default_model(version: str | None) -> Default[str]:
    """Return the model that a server without one loads."""
    return _by_version(version, ("0.5.5", "facebook/opt-125m"), ("0.10.0", "Qwen/Qwen3-0.6B"))


def _by_version(version: str | None, *changes: tuple[str, T]) -> Default[T]:
    """Return the values in force for a version, from changes (first version, value) in order."""
    here = candidates(version)
    values: list[T] = []
    for i, (first, value) in enumerate(changes):
        bits = since(first)
        if i + 1 < len(changes):
            bits &= ~since(changes[i + 1][0])
        if bits & here and value not in values:
            values.append(value)
    return Default(tuple(values))
