"""Engines that are no servers: `LLM(...)` in Python and `lm_eval --model vllm`.

In: what was read of them. Out: a Launch that is reported but never changed. Called by python_runs
and reader.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import EngineArgs, Launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.script.python_source import Offline

_TP: Final = "tensor_parallel_size"
_MODEL_ARGS: Final = re.compile(r"(?:--model_args[= ]|^vllm )(\S+)")


def of_python(engine: Offline) -> Launch:
    """Return the engine that Python code makes."""
    arguments = engine.arguments
    tp = arguments.get(_TP, 1)
    is_given = _TP in arguments or not engine.complete
    read = EngineArgs(
        model=_text(arguments.get("model")),
        tensor_parallel=tp if isinstance(tp, int) else 1,
        pipeline_parallel=_number(arguments.get("pipeline_parallel_size")) or 1,
        dtype=_text(arguments.get("dtype")) or "auto",
        quantization=_text(arguments.get("quantization")),
        max_model_len=_number(arguments.get("max_model_len")),
    )
    return Launch(
        form="LLM()",
        engine=read,
        tp=tp if isinstance(tp, int) and engine.complete else None,
        tp_source="python" if is_given else "absent",
        why="offline batch in Python, not a server",
    )


def of_model_args(args: Sequence[str]) -> Launch | None:
    """Return the engine of `lm_eval --model vllm --model_args k=v,...` and `lighteval vllm k=v`."""
    match = _MODEL_ARGS.search(" ".join(args))
    if match is None:
        return None
    pairs = dict(part.partition("=")[::2] for part in match[1].split(","))
    tp = pairs.get(_TP, "1")
    number = _number(tp)
    model = pairs.get("pretrained") or pairs.get("model_name")
    engine = EngineArgs(
        model=None if model is None or "?" in model else model,
        tensor_parallel=number or 1,
        dtype=pairs.get("dtype", "auto"),
        quantization=pairs.get("quantization"),
        max_model_len=_number(pairs.get("max_model_len")),
    )
    source = "absent" if _TP not in pairs else "unknown" if number is None else "literal"
    form = "lm_eval" if "pretrained" in pairs else ""
    return Launch(form=form, engine=engine, tp=number, tp_source=source)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
