"""gpus.yaml as a table: the names that people, Slurm and drivers give a card to GpuFacts.

In: the layers of gpus.yaml. Out: GpuTable. Called by the catalog.

A name is compared as a set of words: makers' names, SXM generations and ways to write a memory
size are alike (`nvidia_a100-sxm4-80gb`, `A100-SXM 80 GB`). What is left must be one card's words
exactly, so a MIG slice (`a100_1g.10gb`) or a site's own word (`a100l`) is nobody's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.errors import CatalogError, ConfigError, Fault, near_names
from omnipilot_slurm.facts import GpuFacts
from omnipilot_slurm.strict_yaml import (
    Flag,
    Integer,
    Layer,
    ListOf,
    Loaded,
    MapOf,
    Nullable,
    Number,
    Section,
    Text,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA_VERSION = 1

_NAME = Text(means="a name", max_length=200)


def _gpu(**values: Any) -> dict[str, Any]:
    capability = values["capability"]
    return values | {"capability": None if capability is None else tuple(capability)}


SPEC = Section(
    keys={
        "ambiguous": MapOf(value=ListOf(item=_NAME, min_items=2), key=_NAME),
        "gpus": MapOf(
            key=_NAME,
            value=Section(
                keys={
                    "name": _NAME,
                    "vendor": Text(choices=("nvidia", "amd", "intel")),
                    "mem_gib": Number(above=0, hi=10_000),
                    "mem_is_measured": Flag(),
                    "bandwidth_gb_s": Number(above=0, hi=1e6),
                    "peak_tflops": MapOf(
                        key=Text(choices=("fp16", "fp8", "int8", "fp4")),
                        value=Number(above=0, hi=1e6),
                    ),
                    "link_gb_s": Number(above=0, hi=1e5),
                    "tdp_w": Number(above=0, hi=1e5),
                    "capability": Nullable(
                        of=ListOf(item=Integer(lo=0, hi=99), min_items=2, max_items=2)
                    ),
                    "price_usd_per_gpu_hour": Nullable(of=Number(lo=0, hi=1e5)),
                    "aliases": ListOf(item=_NAME),
                    "source": Text(means="a sentence"),
                },
                into=_gpu,
            ),
        ),
    }
)

_DROPPED = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "intel", "instinct", "gpu", "rtx", "graphics", "hbm",
     "hbm2", "hbm2e", "hbm3", "hbm3e", "core", "tensor"}
)  # fmt: skip
_MEMORY = re.compile(r"(\d+)(gib|gb|g)")
_SIZE = re.compile(r"\d+g")
_SLICE = re.compile(r"\d+g\.\d+gb|\bmig\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuTable:
    """GPU facts by id, and which id each set of words means."""

    gpus: dict[str, GpuFacts]
    _by_words: Mapping[frozenset[str], tuple[str, ...]]

    def find(self, name: str, *, mem_gb: float | None = None) -> GpuFacts:
        """Return the card that a name means; `mem_gb` as sold tells sizes of one name apart.

        Raises: CatalogError for a name that no card has, several share, or a MIG slice.
        """
        found = self.meant(name, mem_gb=mem_gb)
        if len(found) == 1:
            return found[0]
        raise self._unknown(name, tuple(card.id for card in found))

    def meant(self, name: str, *, mem_gb: float | None = None) -> tuple[GpuFacts, ...]:
        """Return the cards that a name may mean, none where it is no card's.

        Raises: CatalogError for a MIG slice.
        """
        if _SLICE.search(name):
            raise CatalogError(
                f"gpu {name!r} is a MIG slice, which is no whole card",
                hint="map it to a card of its own in cluster.gpu_map and gpus.yaml",
            )
        words = _words(name)
        found = self._of_size(self._by_words.get(words, ()), mem_gb)
        sizes = [word for word in words if _SIZE.fullmatch(word)]
        if not found and len(sizes) == 1:
            unsized = self._by_words.get(words - {sizes[0]}, ())
            found = self._of_size(unsized, float(sizes[0].removesuffix("g")))
        return found

    def _of_size(self, ids: Sequence[str], sold_gb: float | None) -> tuple[GpuFacts, ...]:
        cards = (self.gpus[gpu_id] for gpu_id in ids)
        return tuple(c for c in cards if sold_gb is None or _near_size(c.mem_gib, sold_gb))

    def _unknown(self, name: str, ids: tuple[str, ...]) -> CatalogError:
        if ids:
            return CatalogError(
                f"gpu {name!r} may be {' or '.join(ids)}",
                near=ids,
                hint="say which in cluster.gpu_map, or write its memory behind the name",
            )
        near = near_names(name, self.gpus)
        advice = f"; near names: {', '.join(near)}" if near else ""
        return CatalogError(
            f"gpu {name!r} is not known{advice}",
            near=near,
            hint="map it in cluster.gpu_map, or describe it in gpus.yaml",
        )


def _near_size(mem_gib: float, sold_gb: float) -> bool:
    """Tell whether a card that reports `mem_gib` is sold as `sold_gb`."""
    return 0.88 * sold_gb <= mem_gib <= 1.02 * sold_gb


def _words(name: str) -> frozenset[str]:
    """Return the words of a name that tell cards apart."""
    spelled = re.sub(r"[-_/ ()]+", "-", name.casefold())
    spelled = re.sub(r"(?<=\d)-(?=(gb|gib)\b)", "", spelled)
    spelled = re.sub(r"\b(rtx|gtx|quadro|pro)(?=(a\d|\d|pro))", r"\1-", spelled)
    spelled = re.sub(r"(?<=\d{4})-(?=(ti|d)\b)", "", spelled)
    spelled = re.sub(r"(?<=\d{4})(?=super\b)", "-", spelled)
    raw = spelled.split("-")
    words = {re.sub(r"^sxm\d$", "sxm", word) for word in raw if word} - _DROPPED
    return frozenset(_MEMORY.sub(r"\1g", word) for word in words)


def load_gpus(layers: Sequence[Layer]) -> tuple[GpuTable, Loaded]:
    """Read gpus.yaml.

    Raises: ConfigError, also where two cards claim one name.
    """
    loaded = load(layers, SPEC, version=SCHEMA_VERSION)
    gpus = {key: GpuFacts(id=key, **row) for key, row in loaded.value["gpus"].items()}
    by_words: dict[frozenset[str], tuple[str, ...]] = {}
    faults = []
    for gpu in gpus.values():
        for name in (gpu.id, *gpu.aliases):
            owner = by_words.setdefault(_words(name), (gpu.id,))
            if owner != (gpu.id,):
                message = f"gpus.{gpu.id}.aliases: {name!r} already means {owner[0]}"
                faults.append(loaded.fault(("gpus", gpu.id, "aliases"), message))
    faults += list(_ambiguous(loaded, gpus, by_words))
    if faults:
        raise ConfigError(faults)
    return GpuTable(gpus, by_words), loaded


def _ambiguous(
    loaded: Loaded, gpus: dict[str, GpuFacts], by_words: dict[frozenset[str], tuple[str, ...]]
) -> Iterator[Fault]:
    """Enter the names that several cards share; yield a fault for a card that is not there."""
    for name, ids in loaded.value["ambiguous"].items():
        for missing in (gpu_id for gpu_id in ids if gpu_id not in gpus):
            yield loaded.fault(("ambiguous", name), f"ambiguous.{name}: no gpu {missing!r}")
        by_words[_words(name)] = tuple(ids)
