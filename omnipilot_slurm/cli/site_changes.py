"""Single keys of the site's files, set for one question: `utility.wait_usd_per_hour=5`.

In: `KEY=VALUE` as written on a command line, the site's files. Out: the Site with these keys
changed. Called by whatif. A value is read by the strict schema of the file that the key is in, as
one more layer over the site's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm import priors_file, settings, utility_file
from omnipilot_slurm.catalog import gpu_table
from omnipilot_slurm.decide.success import LaunchCounts, launch_priors
from omnipilot_slurm.decide.wait_history import WaitHistory, queue_waits
from omnipilot_slurm.errors import CatalogError, ConfigError, UsageError
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.strict_yaml import Integer, Layer, MapOf, Nullable, Section, load
from omnipilot_slurm.yaml_words import unknown_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.strict_yaml import Spec

_GPUS: Final = "gpus.yaml"
_PRICE: Final = "price_usd_per_gpu_hour"
#: in which file the sections are on which a decision rests, and what that file may say
_FILES: Final[dict[str, tuple[str, Section, int]]] = {
    "utility": (utility_file.FILE, utility_file.SPEC, utility_file.SCHEMA_VERSION),
    **dict.fromkeys(
        ("policy", "workload", "vllm"), (settings.FILE, settings.SPEC, settings.SCHEMA_VERSION)
    ),
    **dict.fromkeys(
        ("launch", "wait"), (priors_file.FILE, priors_file.SPEC, priors_file.SCHEMA_VERSION)
    ),
    "gpus": (_GPUS, gpu_table.SPEC, gpu_table.SCHEMA_VERSION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteChange:
    """One key and what it is set to, as YAML; `said` is what the user wrote, for errors."""

    said: str
    path: tuple[str, ...]
    value: str

    @property
    def key(self) -> str:
        """The dotted key."""
        return ".".join(self.path)


def parse_change(option: str, text: str) -> SiteChange:
    """Return what `--set KEY=VALUE` says.

    Raises: UsageError for another form or a section on which no decision rests.
    """
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise UsageError(f"{option} must be KEY=VALUE, was {text!r}")
    said = f"{option} {text}"
    path = tuple(key.split("."))
    if path[0] not in _FILES:
        raise UsageError(f"{said}: {unknown_key(path[0], _FILES)}")
    return SiteChange(said=said, path=path, value=value)


def parse_price(option: str, text: str, catalog: Catalog) -> SiteChange:
    """Return what `--gpu-price GPU=VALUE` says, GPU being any name that the catalog knows.

    Raises: UsageError for another form or an unknown GPU.
    """
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"{option} must be GPU=USD_PER_HOUR, was {text!r}")
    return SiteChange(
        said=f"{option} {text}",
        path=("gpus", _gpu_id(f"{option} {text}", name, catalog), _PRICE),
        value=value,
    )


def checked(change: SiteChange, catalog: Catalog) -> SiteChange:
    """Return the change with its GPU under the catalog's own name.

    Raises: UsageError for a GPU that is unknown, or a key of one that is no price.
    """
    if change.path[0] != "gpus":
        return change
    if len(change.path) != len(("gpus", "ID", _PRICE)) or change.path[-1] != _PRICE:
        raise UsageError(f"{change.said}: of a GPU only gpus.ID.{_PRICE} can be set here")
    gpu_id = _gpu_id(change.said, change.path[1], catalog)
    return replace(change, path=("gpus", gpu_id, _PRICE))


def _gpu_id(said: str, name: str, catalog: Catalog) -> str:
    try:
        return catalog.gpu(name).id
    except CatalogError as error:
        raise UsageError(f"{said}: {error}") from error


def is_whole(change: SiteChange) -> bool:
    """Return whether a key holds whole numbers; False for a key that no schema has."""
    spec: Spec | None = _FILES[change.path[0]][1]
    for step in change.path:
        spec = _below(spec, step)
    return isinstance(spec.of if isinstance(spec, Nullable) else spec, Integer)


def _below(spec: Spec | None, step: str) -> Spec | None:
    if isinstance(spec, Section):
        return spec.keys.get(step)
    return spec.value if isinstance(spec, MapOf) else None


def changed_site(site: Site, folders: Sequence[Path], changes: Sequence[SiteChange]) -> Site:
    """Return the site with the keys changed; `folders` hold its files.

    How far the site lets us go stays as it is in `site`. Raises: UsageError with every fault.
    """
    for name, (spec, version) in {row[0]: row[1:] for row in _FILES.values()}.items():
        ours = [change for change in changes if _FILES[change.path[0]][0] == name]
        if ours:
            site = _with(site, name, _loaded(name, spec, version, folders, ours), ours)
    return site


def _loaded(
    name: str, spec: Section, version: int, folders: Sequence[Path], changes: Sequence[SiteChange]
) -> Any:
    layers = [*layers_over(name, folders), *(_layer(change, version) for change in changes)]
    try:
        return load(layers, spec, version=version).value
    except ConfigError as error:
        raise UsageError(
            "\n".join(f"{fault.file}: {fault.message}" for fault in error.faults)
        ) from error


def _layer(change: SiteChange, version: int) -> Layer:
    """Return a file that sets nothing but this key."""
    lines = [f"schema: {version}"]
    lines += [f"{' ' * depth}{json.dumps(step)}:" for depth, step in enumerate(change.path)]
    text = "\n".join(lines) + f" {change.value}\n"
    return Layer(file=change.said, data=text.encode())


def _with(site: Site, name: str, value: Any, changes: Sequence[SiteChange]) -> Site:
    """Return the site with what one file says now."""
    if name == utility_file.FILE:
        return replace(site, utility=value["utility"])
    if name == settings.FILE:
        policy, was = value.policy, site.policy
        kept = replace(
            policy,
            mode=was.mode,
            by_partition=was.by_partition,
            by_account=was.by_account,
            by_user=was.by_user,
        )
        return replace(site, policy=kept, workload=value.workload, vllm=value.vllm)
    if name == priors_file.FILE:
        return replace(
            site,
            launches=launch_priors(value.launch, LaunchCounts()),
            waits=queue_waits(value.wait, WaitHistory()),
        )
    prices = {change.path[1]: value["gpus"][change.path[1]][_PRICE] for change in changes}
    pools = tuple(
        replace(pool, gpu=replace(pool.gpu, price_usd_per_gpu_hour=prices[pool.gpu.id]))
        if pool.gpu.id in prices
        else pool
        for pool in site.pools
    )
    return replace(site, pools=pools)
