"""What was read in a script, under the short names that `omnipilot detect` prints.

In: a Script, its bytes and the GPU request. Out: a mapping ready for JSON. Called by cli.detect and
the acceptance tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Editable
from omnipilot_slurm.script.words import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.records import Launch, Script
    from omnipilot_slurm.script.tres import GpuRequest


def detected(script: Script, text: bytes, request: GpuRequest) -> dict[str, object]:
    """Return all that is known of a script; lists where several servers differ or may differ."""
    launches = script.launches or ((script.engine_run,) if script.engine_run else ())
    found: dict[str, object] = {
        "is_serving": script.is_serving,
        "kind": str(script.kind),
        "n_servers": None if script.is_serving is None else len(script.launches),
        "form": _common(launches, lambda launch: launch.form or None),
        "model": _each(launches, lambda launch: launch.engine.model or None),
        "tp": _each(launches, lambda launch: launch.tp),
        "tp_source": _common(launches, lambda launch: launch.tp_source),
        "pp": _engine(launches, "pipeline_parallel"),
        "dp": _engine(launches, "data_parallel"),
        "ep": _engine(launches, "expert_parallel"),
        "dtype": _engine(launches, "dtype"),
        "quant": _engine(launches, "quantization"),
        "kv_cache_dtype": _engine(launches, "kv_cache_dtype"),
        "max_model_len": _engine(launches, "max_model_len"),
        "gpus": request.total,
        "gpu_type": request.type,
        "gpu_type_source": request.type_source,
        "nodes": request.n_nodes,
    }
    editable = launches[0].editable if script.launches else Editable.NO
    return {**found, "editable": str(editable), "why": script.why, "edit": _edit(script, text)}


def _engine(launches: tuple[Launch, ...], name: str) -> object:
    """Return an engine argument; what stands only in a settings file is not known."""
    return _common(
        launches,
        lambda launch: (
            None
            if launch.engine.config_file is not None and not _given(launch, name)
            else getattr(launch.engine, name)
        ),
    )


def _given(launch: Launch, name: str) -> bool:
    defaults = {"dtype": "auto", "kv_cache_dtype": "auto", "expert_parallel": False}
    default = defaults.get(name, 1 if name.endswith("_parallel") else None)
    return bool(getattr(launch.engine, name) != default)


def _common(launches: tuple[Launch, ...], value: Callable[[Launch], object]) -> object:
    """Return the one value of all launches, a list where they differ, None without launches."""
    values = [value(launch) for launch in launches]
    if not values:
        return None
    return values[0] if all(item == values[0] for item in values) else values


def _each(launches: tuple[Launch, ...], value: Callable[[Launch], object]) -> object:
    """Return the value of the one launch, or the list of all launches' values."""
    values = [value(launch) for launch in launches]
    return values if len(values) > 1 else (values[0] if values else None)


def _edit(script: Script, text: bytes) -> dict[str, object] | None:
    launch = script.launches[0] if script.launches else None
    if launch is None or launch.editable is Editable.NO or launch.tp_place is None:
        return None
    place = launch.tp_place
    return {
        "op": "insert" if place.start == place.end else "replace",
        "line": text.count(b"\n", 0, place.start) + 1,
        "byte_start": place.start,
        "byte_end": place.end,
        "old": decode(place.old),
    }
