"""The site's configuration as a whole: every fault of every file, and what is doubtful.

In: the folder with the site's files, and the cluster as omnipilotd published it, if it did. Out:
faults, for which a file is not used, and warnings: what is allowed but fits nothing. Called by
`omnipilot config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnipilot_slurm import coldstart_file, priors_file, settings, startup_file, utility_file
from omnipilot_slurm.catalog import gpu_table, model_table
from omnipilot_slurm.catalog.check import check_catalogs
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.cluster_facts import UNTYPED, NodeState
from omnipilot_slurm.errors import ConfigError, Fault, near_names
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.site_files import read_files, unknown_gpus
from omnipilot_slurm.strict_yaml import Loaded, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.site_files import SiteFiles
    from omnipilot_slurm.strict_yaml import Section

_GPUS = "gpus.yaml"
#: what each file of etc/ may say, and the version of that
FILES: dict[str, tuple[Section, int]] = {
    settings.FILE: (settings.SPEC, settings.SCHEMA_VERSION),
    utility_file.FILE: (utility_file.SPEC, utility_file.SCHEMA_VERSION),
    priors_file.FILE: (priors_file.SPEC, priors_file.SCHEMA_VERSION),
    startup_file.FILE: (startup_file.SPEC, startup_file.SCHEMA_VERSION),
    coldstart_file.FILE: (coldstart_file.SPEC, coldstart_file.SCHEMA_VERSION),
    _GPUS: (gpu_table.SPEC, gpu_table.SCHEMA_VERSION),
    "models.yaml": (model_table.SPEC, model_table.SCHEMA_VERSION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCheck:
    """What is wrong and what is doubtful; `snapshot` is the file that tells of the cluster.

    Without one, and while there are faults, nothing is held against the cluster.
    """

    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    snapshot: str | None = None


def loaded_file(name: str, folders: Sequence[Path]) -> Loaded:
    """Return one of FILES, the shipped one with each folder's own on top.

    Raises: ConfigError with every fault of its layers.
    """
    spec, version = FILES[name]
    return load(layers_over(name, folders), spec, version=version)


def own_files(folders: Sequence[Path]) -> Iterator[tuple[str, Loaded]]:
    """Yield each of FILES that a folder has one of its own of, over the shipped one.

    Raises: ConfigError with every fault of a file.
    """
    for name in FILES:
        if any((folder / name).is_file() for folder in folders):
            yield name, loaded_file(name, folders)


def check_site(folder: Path) -> SiteCheck:
    """Return all that is wrong or doubtful about the files in a folder.

    Raises: ConfigError when the published snapshot is none.
    """
    strays = list(_strays(folder))
    faults = _in_order(_faults(folder))
    if faults:
        return SiteCheck(faults=faults, warnings=_in_order(strays))
    files = read_files([folder])
    published = files.published()
    if published is None:
        unpriced = _unpriced(folder, _mapped_gpus(files))
        return SiteCheck(warnings=_in_order([*strays, *unpriced]))
    snapshot = load_snapshot(published.data, file=published.file)
    used = {pool.gpu.id for pool in files.pools(snapshot)}
    doubts = [
        *strays,
        *_unknown_names(files, snapshot),
        *_unmapped_gpus(files, snapshot),
        *_unpriced(folder, used),
    ]
    return SiteCheck(warnings=_in_order(doubts), snapshot=published.file)


def _in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults without doubles by file and place."""
    return tuple(sorted(set(faults), key=lambda each: (each.file, each.line, each.column)))


def _faults(folder: Path) -> Iterator[Fault]:
    yield from check_catalogs(site=folder)
    for read in (
        settings.load_settings,
        utility_file.load_utility,
        priors_file.load_priors,
        startup_file.load_startup,
        coldstart_file.load_coldstart,
        _load_gpu_map,
    ):
        try:
            read([folder])
        except ConfigError as error:
            yield from error.faults


def _load_gpu_map(folders: Sequence[Path]) -> None:
    """Hold `cluster.gpu_map` against gpus.yaml, whatever is wrong with other files."""
    settings_file = settings.load_settings(folders)
    faults = unknown_gpus(settings_file, loaded_file(_GPUS, folders).value["gpus"])
    if faults:
        raise ConfigError(faults)


def _strays(folder: Path) -> Iterator[Fault]:
    """Yield a warning for each file of the folder that looks like one of ours and is not read."""
    stems = [name.removesuffix(".yaml") for name in FILES]
    for path in sorted(folder.glob("*.y*ml")):
        if path.name not in FILES:
            near = near_names(path.stem, stems, n=1)
            advice = f"; did you mean {near[0]}.yaml" if near else f"; files are {', '.join(FILES)}"
            yield Fault(file=str(path), line=1, column=1, message=f"is not read{advice}")


def _mapped_gpus(files: SiteFiles) -> set[str]:
    gpu_map = files.settings_file.settings.cluster.gpu_map
    return {*gpu_map.partition.values(), *gpu_map.feature.values(), *gpu_map.gres.values()}


def _unpriced(folder: Path, gpu_ids: set[str]) -> Iterator[Fault]:
    """Yield a warning for each GPU in use whose price nobody has set."""
    loaded = loaded_file(_GPUS, [folder])
    for gpu_id in sorted(gpu_ids):
        if loaded.value["gpus"][gpu_id]["price_usd_per_gpu_hour"] is None:
            path = ("gpus", gpu_id, "price_usd_per_gpu_hour")
            message = f"{'.'.join(path)}: has no price, so that it is the last choice"
            yield loaded.fault(path, message)


def _unknown_names(files: SiteFiles, snapshot: Snapshot) -> Iterator[Fault]:
    """Yield a warning for each partition, feature and GPU type that the cluster does not have."""
    shapes = [shape for partition in snapshot.partitions for shape in partition.shapes]
    partitions = {partition.name for partition in snapshot.partitions}
    there = {
        ("policy", "by_partition"): ("partition", partitions),
        ("policy", "canary_percent_by_partition"): ("partition", partitions),
        ("workload", "by_partition"): ("partition", partitions),
        ("vllm", "by_partition"): ("partition", partitions),
        ("cluster", "gpu_map", "partition"): ("partition", partitions),
        ("cluster", "gpu_map", "feature"): (
            "feature", {feature for shape in shapes for feature in shape.features},
        ),
        ("cluster", "gpu_map", "gres"): (
            "GPU type", {gres_type for shape in shapes for gres_type in shape.gpus},
        ),
    }  # fmt: skip
    for path, (what, known) in there.items():
        written: Any = files.settings_file.settings
        for key in path:
            written = getattr(written, key)
        for name in written:
            if name not in known:
                near = near_names(name, known, n=1)
                advice = f"; did you mean {near[0]!r}" if near else ""
                message = f"{'.'.join(path)}: the cluster has no {what} {name!r}{advice}"
                yield files.settings_file.file.fault((*path, name), message)


def _unmapped_gpus(files: SiteFiles, snapshot: Snapshot) -> Iterator[Fault]:
    """Yield a warning for each GPU type of the cluster that stands for no known GPU."""
    known = {(pool.partition.name, pool.gres_type or UNTYPED) for pool in files.pools(snapshot)}
    for partition in snapshot.partitions:
        up = [shape for shape in partition.shapes if shape.state is NodeState.UP]
        for gres_type in sorted({name for shape in up for name in shape.gpus}):
            if (partition.name, gres_type) not in known:
                message = (
                    f"cluster.gpu_map: {gres_type!r} in partition {partition.name!r} is no GPU of "
                    "gpus.yaml, so that jobs there are let through; say which it is"
                )
                yield files.settings_file.file.fault(("cluster", "gpu_map"), message)
