"""The eras of vLLM's start-up memory: which versions measure, sample and reserve alike.

In: the version in question (None: not known) and the model's architecture. Out: the eras it may
belong to, each with one of its versions. Called by `effective` and the fit of the coefficients.
Read in worker.py, gpu_worker.py and topk_topp_sampler.py of the versions in options.py:

    reserved   V0 to 0.6.3: what the driver lost while profiling, the allocator's slack included
    v0         V0 from 0.6.4: torch's own peak, and what grew beside torch
    absolute   V1 to 0.9.0: torch's peak, and all that is not torch's, the CUDA context included
    sorting    V1 from 0.9.1: what grew since start-up; the sampler sorts the vocabulary
    triton     V1 from 0.17.0: the sampler filters in place
    fused      V1 from 0.21.0: a fused sampler, for some models a second model runner
    second     V1 from 0.28.0: the second model runner, which profiles all a request may ask for
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from omnipilot_slurm.vllm.architectures import ARCHITECTURES
from omnipilot_slurm.vllm.grammar import EVERY, before, candidates, is_beyond, mask, since
from omnipilot_slurm.vllm.options import VERSIONS
from omnipilot_slurm.vllm.versions import find_key


class Era(NamedTuple):
    """An era's name, its engine, the bits of its versions."""

    name: str
    engine: str
    versions: int


ERAS = (
    Era("reserved", "V0", before("0.6.4.post1")),
    Era("v0", "V0", since("0.6.4.post1") & before("0.11.0")),
    Era("absolute", "V1", since("0.8.0") & before("0.9.1")),
    Era("sorting", "V1", since("0.9.1") & before("0.17.0")),
    Era("triton", "V1", since("0.17.0") & before("0.21.0")),
    Era("fused", "V1", since("0.21.0") & before("0.28.0")),
    Era("second", "V1", since("0.28.0")),
)
VERSIONS_OF = {era.name: era.versions for era in ERAS}


@lru_cache(maxsize=1)
def _rows() -> dict[str, tuple[int, int]]:
    rows = {}
    for row in ARCHITECTURES.splitlines():
        name, known, without_pp = row.split()
        rows[name] = (mask(known), 0 if without_pp == "-" else mask(without_pp))
    return rows


def registered(architecture: str | None) -> int:
    """Return the bits of the versions that know an architecture; of all, where it has no row."""
    return _rows().get(architecture or "", (EVERY, 0))[0]


def without_pipelines(architecture: str | None) -> int:
    """Return the bits of the versions whose class of the model cannot be split into stages."""
    return _rows().get(architecture or "", (EVERY, 0))[1]


@lru_cache(maxsize=512)
def in_question(version: str | None, architecture: str | None) -> int:
    """Return the bits of the versions a string may stand for; of all, where it was never read.

    A version that is not known is one that registers the model's architecture. One older or newer
    than all that were read shares what all of them do, nothing else.
    """
    if is_beyond(version):
        return EVERY
    here = candidates(version)
    if version is None or find_key(version) is None:
        here &= registered(architecture) or EVERY
    return here


@lru_cache(maxsize=512)
def possible_eras(
    version: str | None, architecture: str | None
) -> tuple[tuple[str, tuple[Era, ...]], ...]:
    """Return the eras a server may belong to, by the newest version in question that has them."""
    here = in_question(version, architecture)
    if is_beyond(version):
        here = candidates(version)
    found: dict[str, tuple[Era, ...]] = {}
    for era in ERAS:
        if bits := era.versions & here:
            newest = VERSIONS[bits.bit_length() - 1]
            found[newest] = (*found.get(newest, ()), era)
    return tuple(found.items())
