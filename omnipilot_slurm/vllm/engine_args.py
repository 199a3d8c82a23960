"""From a parsed command line to the settings that decide memory, GPUs and start-up.

In: a CommandLine. Out: EngineArgs, with what cannot be told named in `unknown` and what vLLM would
say in `warnings`. Called by the script reader and `omnipilot fit`, through flags.py.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.vllm.defaults import default_model
from omnipilot_slurm.vllm.values import (
    AUTO,
    human_int,
    human_int_or_auto,
    json_value,
    object_text,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.vllm.command_line import CommandLine, Occurrence

_POOLING_TASKS = frozenset({"embed", "embedding", "classify", "score", "reward"})
_SPECULATIVE_MODELS = ("model", "draft_model")


class _Rule(NamedTuple):
    field: str
    convert: Callable[[str], object]


class _OutOfRangeError(ValueError):
    """A value that vLLM's parser takes and its configuration refuses."""


def _text_or_none(text: str) -> str | None:
    return None if text in ("", "None") else text


def _is_given(text: str) -> bool:
    return _text_or_none(text) is not None


def _int_or_none(text: str) -> int | None:
    return None if text in ("", "None") else int(text)


def _count(text: str) -> int:
    """Read a count of at least 1: vLLM's configuration refuses the others."""
    value = human_int(text)
    if value < 1:
        raise _OutOfRangeError(f"must be at least 1, not {value}")
    return value


def _count_or_none(text: str) -> int | None:
    return None if text in ("", "None") else _count(text)


def _length(text: str) -> int:
    value = human_int_or_auto(text)
    return value if value == AUTO else _count(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _OutOfRangeError(f"must be a finite number, not {text!r}")
    return value


def _is_pooling_task(text: str) -> bool:
    return text in _POOLING_TASKS


def _untruth(text: str) -> bool:
    return not truth(text)


def _ray(text: str) -> str | None:
    return "ray" if truth(text) else None


def _is_data(text: str) -> bool:
    return text == "data"


def _is_pooling_runner(text: str) -> bool:
    return text == "pooling"


#: dest of vLLM's parser -> the field of EngineArgs, and how its text is read
_RULES = {
    "tensor_parallel_size": _Rule("tensor_parallel", _count),
    "pipeline_parallel_size": _Rule("pipeline_parallel", _count),
    "data_parallel_size": _Rule("data_parallel", _count),
    "data_parallel_size_local": _Rule("data_parallel_local", _int_or_none),
    "data_parallel_rank": _Rule("data_parallel_rank", _int_or_none),
    "decode_context_parallel_size": _Rule("decode_context_parallel", _count),
    "prefill_context_parallel_size": _Rule("prefill_context_parallel", _count),
    "enable_expert_parallel": _Rule("expert_parallel", truth),
    "nnodes": _Rule("n_nodes", _count),
    "node_rank": _Rule("node_rank", int),
    "headless": _Rule("headless", truth),
    "worker_use_ray": _Rule("executor", _ray),
    "distributed_executor_backend": _Rule("executor", _text_or_none),
    "dtype": _Rule("dtype", str),
    "quantization": _Rule("quantization", _text_or_none),
    "kv_cache_dtype": _Rule("kv_cache_dtype", str),
    "max_model_len": _Rule("max_model_len", _length),
    "max_num_seqs": _Rule("max_num_seqs", _count_or_none),
    "max_num_batched_tokens": _Rule("max_num_batched_tokens", _count_or_none),
    "gpu_memory_utilization": _Rule("gpu_memory_utilization", _finite),
    "kv_cache_memory_bytes": _Rule("kv_cache_memory_bytes", _count_or_none),
    "enforce_eager": _Rule("enforce_eager", truth),
    "enable_chunked_prefill": _Rule("chunked_prefill", truth),
    "enable_prefix_caching": _Rule("prefix_caching", truth),
    "disable_hybrid_kv_cache_manager": _Rule("hybrid_kv_cache", _untruth),
    "block_size": _Rule("block_size", _count_or_none),
    "num_gpu_blocks_override": _Rule("n_gpu_blocks", _int_or_none),
    "cpu_offload_gb": _Rule("cpu_offload_gib", _finite),
    "speculative_config": _Rule("speculative", _is_given),
    "speculative_model": _Rule("speculative", _is_given),
    "spec_method": _Rule("speculative", _is_given),
    "spec_model": _Rule("speculative", _is_given),
    "runner": _Rule("pooling", _is_pooling_runner),
    "task": _Rule("pooling", _is_pooling_task),
    "convert": _Rule("pooling", _is_pooling_task),
    "enable_lora": _Rule("lora", truth),
    "load_format": _Rule("load_format", str),
    "trust_remote_code": _Rule("trust_remote_code", truth),
    "hf_overrides": _Rule("hf_overrides", _text_or_none),
    "attention_backend": _Rule("attention_backend", _text_or_none),
    "limit_mm_per_prompt": _Rule("mm_limits", object_text),
    "mm_processor_kwargs": _Rule("mm_processor_kwargs", object_text),
    "mm_encoder_tp_mode": _Rule("mm_encoder_data_parallel", _is_data),
    "enable_multimodal_encoder_data_parallel": _Rule("mm_encoder_data_parallel", truth),
    "disable_chunked_mm_input": _Rule("chunked_mm_input", _untruth),
    "skip_mm_profiling": _Rule("skip_mm_profiling", truth),
    "language_model_only": _Rule("language_model_only", truth),
    "max_cudagraph_capture_size": _Rule("max_cudagraph_capture_size", _int_or_none),
    "optimization_level": _Rule("optimization_level", int),
    "config": _Rule("config_file", _text_or_none),
}
#: dests of vLLM's parser that decide what the engine does (not where it listens or what it logs)
ENGINE_DESTS = frozenset(_RULES) | {"model", "num_speculative_tokens", "spec_tokens"}
_FIELDS = frozenset(rule.field for rule in _RULES.values()) - {"config_file"}
#: fields that stay what a second option said, unless it says no
_EITHER = frozenset({"speculative", "pooling"})


def engine_args(line: CommandLine, *, version: str | None = None) -> EngineArgs:
    """Return what the server is told; `version` is what the script pins, as given to parse."""
    given = {found.dest: found for found in line.occurrences}
    fields: dict[str, Any] = {}
    unknown: set[str] = set()
    warnings = [problem.text for problem in line.problems]
    for dest, found in given.items():
        rule = _RULES.get(dest)
        if rule is None:
            continue
        value = _value(rule, found, warnings)
        if value is _UNREAD:
            unknown.add(rule.field)
        elif rule.field not in _EITHER or value or rule.field not in fields:
            fields[rule.field] = value
    if fields.get("speculative") and "speculative" not in unknown:
        fields.update(_draft(given))
    if "rope_scaling" in given:
        fields["hf_overrides"] = _with_rope(fields.get("hf_overrides"), given["rope_scaling"].text)
    warnings += _repeated(line)
    _set_model(line, given, fields, unknown, warnings)
    if "config_file" in unknown:
        fields["config_file"] = ""
    if line.open_from is not None or line.last("config") is not None:
        unknown |= _unsettled(line, given)
    return EngineArgs(
        **fields, vllm_version=version, warnings=tuple(warnings), unknown=frozenset(unknown)
    )


_UNREAD = object()


def _value(rule: _Rule, found: Occurrence, warnings: list[str]) -> object:
    """Return the value of an option, _UNREAD where it is not shown or vLLM refuses it."""
    if found.text is None:
        return _UNREAD
    try:
        return rule.convert(found.text)
    except _OutOfRangeError as error:
        warnings.append(f"{found.option}: {error}")
    except ValueError:  # the parser refuses it and has said so
        pass
    return _UNREAD


def _set_model(
    line: CommandLine,
    given: dict[str, Occurrence],
    fields: dict[str, Any],
    unknown: set[str],
    warnings: list[str],
) -> None:
    """Find the model: the positional of `vllm serve`, else --model, else vLLM's own default."""
    flag = given.get("model")
    seated = line.form == "vllm serve" or (line.form == "docker entrypoint" and flag is None)
    place = next(iter(line.positionals), None) if seated else None
    if place is not None:
        several = len(line.positionals) > 1 and place.text is None
        text = place.text if place.certain and not several else None
    elif flag is not None:
        text = flag.text
    elif line.open_from is None and "config" not in given:
        names = " or ".join(default_model(line.version).values)
        warnings.append(f"no model is named: vLLM would serve {names}")
        return
    else:
        text = None
    if text is None:
        unknown.add("model")
    else:
        fields["model"] = text


def _unsettled(line: CommandLine, given: dict[str, Occurrence]) -> set[str]:
    """Return the fields that a word not seen, or the configuration file, may set."""
    settled = {
        _RULES[dest].field
        for dest, found in given.items()
        if dest in _RULES and line.is_settled(found)
    }
    return set(_FIELDS - settled)


def _repeated(line: CommandLine) -> list[str]:
    """Say which options are given twice with different values: the last one counts."""
    said: dict[str, str | None] = {}
    warnings = []
    for found in line.occurrences:
        if found.dest in _RULES and said.get(found.dest, found.text) != found.text:
            warnings.append(f"{found.option}: given more than once; the last one counts")
        said[found.dest] = found.text
    return warnings


def _draft(given: dict[str, Occurrence]) -> dict[str, Any]:
    """Return the draft model and its tokens, from JSON or from the separate options."""
    found: dict[str, Any] = {}
    for dest in ("speculative_model", "spec_model"):
        if dest in given:
            found["speculative_model"] = given[dest].text
    for dest in ("num_speculative_tokens", "spec_tokens"):
        if dest in given:
            found["speculative_tokens"] = _int_of(given[dest].text)
    if "speculative_config" in given:
        found.update(_draft_in_json(given["speculative_config"].text or ""))
    return found


def _with_rope(overrides: str | None, rope: str | None) -> str | None:
    """Add the --rope-scaling of older versions to the overrides, both JSON."""
    both = _object(overrides) | {"rope_scaling": _object(rope)}
    return json.dumps(both) if both["rope_scaling"] else overrides


def _object(text: str | None) -> dict[str, object]:
    """Return the JSON object in a text, {} where there is none."""
    try:
        value = json_value(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _draft_in_json(text: str) -> dict[str, Any]:
    config = _object(text)
    if not config:
        return {}
    model = next((config[key] for key in _SPECULATIVE_MODELS if key in config), None)
    tokens = config.get("num_speculative_tokens")
    return {
        "speculative_model": model if isinstance(model, str) else None,
        "speculative_tokens": _int_of(str(tokens)),
    }


def _int_of(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
