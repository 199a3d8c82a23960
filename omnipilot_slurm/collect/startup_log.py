"""What vLLM's log says of a start: memory by part, the cache, and how long each stage took.

In: the text of a log. Out: `StartLog`. Pure. Called by the collector and by probes. Read in the
sources of 0.6.0 to 0.33.0, whose words differ: "GB" of 0.6 are GiB, the activation peak is in the
profiler's line up to 0.10 and in "Actual usage" from there on (a debug line carries it as well).
Workers of one server repeat the lines; the largest of each counts, since the fullest GPU decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from omnipilot_slurm.store.server_starts import StartFigures

_N: Final = r"(-?[\d.]+)"
_GIB: Final = rf"{_N} ?Gi?B"
#: by figure, the wordings of the versions, newest first; the first that occurs counts
_WORDINGS: Final = {
    "weights_gib": (rf"(?:Model loading|Loading model weights) took {_GIB}",),
    "activation_gib": (
        rf"{_GIB} for peak activation",
        rf"torch peak memory increase: {_GIB}",
        rf"PyTorch activation peak memory takes {_GIB}",
    ),
    "non_torch_gib": (
        rf"{_GIB} for non-torch memory",
        rf"non-torch forward increase memory: {_GIB}",
        rf"non_torch_memory takes {_GIB}",
    ),
    "graphs_gib": (rf"Graph capturing finished in [\d.]+ secs, took {_GIB}",),
    "kv_cache_gib": (
        rf"Available KV cache memory: {_GIB}",
        rf"memory reserved for KV Cache is {_GIB}",
    ),
    "load_s": (
        rf"Loading weights took {_N} seconds",
        rf"Model loading took [\d.]+ GiB(?: memory)? and {_N} seconds",
    ),
    "compile_s": (rf"torch\.compile (?:took|takes) {_N} s in total",),
    "graphs_s": (rf"Graph capturing finished in {_N} secs",),
    "engine_s": (rf"init engine \(profile, create kv cache, warmup model\) took {_N} s",),
}
_READERS: Final = {
    name: tuple(re.compile(wording) for wording in wordings) for name, wordings in _WORDINGS.items()
}
_TOKENS: Final = re.compile(r"KV cache size: ([\d,]+) tokens")
_BLOCKS: Final = re.compile(r"# (?:GPU|CUDA|cuda|rocm|ROCM) blocks: (\d+)")
_VERSION: Final = re.compile(
    r"(?:server version|LLM engine \(v|█ +version)\s*v?(\d+\.\d+[\w.+]*)", re.IGNORECASE
)
#: the API server and the engine both name the version, with the configuration between them
_ONE_START_CHARS: Final = 20_000
#: tokens a block of the cache holds where nobody says otherwise
BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """The figures of a log, the version it names, and the GPU blocks of the V0 engine's wording."""

    figures: StartFigures
    version: str | None
    n_blocks: int | None


def read_start(text: str) -> StartLog:
    """Return what a log says of the last start in it; a figure that it does not say is None."""
    starts = list(_VERSION.finditer(text))
    near = [each for each in starts if starts[-1].start() - each.start() < _ONE_START_CHARS]
    text = text[near[0].start() :] if near else text
    figures: dict[str, float] = {}
    for name, readers in _READERS.items():
        values = next((found for reader in readers if (found := _numbers(reader, text))), [])
        # memory that was freed meanwhile is logged as negative: nothing is known of the graphs then
        if values and max(values) >= 0:
            figures[name] = max(values)
    tokens = [int(each.replace(",", "")) for each in _TOKENS.findall(text)]
    blocks = [int(each) for each in _BLOCKS.findall(text)]
    n_tokens = min(tokens) if tokens else min(blocks) * BLOCK_TOKENS if blocks else None
    return StartLog(
        figures=replace(StartFigures(**figures), n_kv_tokens=n_tokens),  # type: ignore[arg-type]  # floats
        version=starts[-1][1] if starts else None,
        n_blocks=min(blocks) if blocks else None,
    )


def _numbers(reader: re.Pattern[str], text: str) -> list[float]:
    values = []
    for word in reader.findall(text):
        try:
            values.append(float(word))
        except ValueError:
            continue
    return values
