"""GPU requests as Slurm writes them: parse and format gres and tres_per_* strings.

In: strings from users (`gpu:a100:2(S:0)`), from slurmctld (`gres:gpu:a100:2` up to 23.02,
`gres/gpu:a100:2` from 23.11, `cpu=4,gres/gpu=2` in tres_per_task) and from the environment
(`h100:2`). Out: Gres records and strings in the same form. Called by directives, rewrite, decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnipilot_slurm.records import Submission

_ENTRY: Final = re.compile(
    r"^(?P<prefix>gres[:/])?(?P<name>[A-Za-z][\w.-]*)"
    r"(?::(?P<type>[A-Za-z_][\w.+-]*|\d[\w.+-]*[A-Za-z_+][\w.+-]*))?"
    r"(?:[:=](?P<count>\d{1,9})(?P<unit>[kKmMgGtTpP]?))?$"
)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_BARE: Final = re.compile(
    r"^(?:(?P<type>[A-Za-z_][\w.+-]*|\d[\w.+-]*[A-Za-z_+][\w.+-]*):)?(?P<count>\d{1,9})$"
)
#: GPU models by which partitions and features are commonly named
_GPU_WORD: Final = (
    r"(?:gb300|gb200|gh200|b300|b200|h200|h100|h800|h20|a800|a100l?|a10g|a40|a30|a16|a10|a6000"
    r"|a5500|a5000|a4500|a4000|a2000|l40s|l40|l20|l4|v100s?|p100|p40|m40|k80|t4|mi355x|mi325x|mi300[ax]?"
    r"|mi250x?|mi210|mi100|titan\w*|rtx\w+|[1-5]0[5-9]0(?:ti)?)"
)
_GPU_TOKEN: Final = re.compile(
    rf"(?:^|[^a-z0-9])(?:gpus?)?(?:\d{{1,2}}x?)?(?P<gpu>{_GPU_WORD})"
    r"(?=$|[^a-z0-9]|x\d|sxm|pcie|nvl|mig|(?:16|24|32|40|48|64|80|94|96|141)gb?(?![a-z0-9]))"
)
#: longest request that is read
_MAX_CHARS: Final = 1024
#: more GPUs than any job holds; above it a number is a mistake
_MOST_GPUS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """One entry of a gres list: `name[:type][:count]`."""

    name: str
    type: str | None = None
    count: int = 1

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What a job asks of GPUs, over all its forms.

    `total` counts all nodes (None: cannot be told), `form` is the option it was asked with (gres,
    gpus, gpus-per-node, gpus-per-task, gpus-per-socket, None: not asked), `type` and `type_source`
    say which GPU and how (gres form, constraint, partition).
    """

    total: int | None = 0
    per_node: int | None = 0
    n_nodes: int = 1
    form: str | None = None
    type: str | None = None
    type_source: str | None = None
    forms: tuple[str, ...] = ()


def parse_gres(text: str | None) -> tuple[Gres, ...] | None:
    """Return the entries of a gres or tres list, or None where one of them cannot be read."""
    if not text:
        return ()
    return None if len(text) > _MAX_CHARS else _entries(text)


@lru_cache(maxsize=256)
def _entries(text: str) -> tuple[Gres, ...] | None:
    entries = []
    for part in filter(None, (piece.strip() for piece in _split_commas(text))):
        match = _ENTRY.match(re.sub(r"\(.*\)$", "", part))
        if match is None:
            return None
        count = int(match["count"] or 1) * _UNITS[(match["unit"] or "").lower()]
        entries.append(Gres(name=match["name"], type=match["type"], count=count))
    return tuple(entries)


def parse_gpus(text: str | None) -> tuple[Gres, ...] | None:
    """Return the GPU entries of `[type:]count[,...]`, as --gpus and SLURM_GPUS write them."""
    if len(text or "") > _MAX_CHARS:
        return None
    entries = []
    for part in filter(None, (piece.strip() for piece in _split_commas(text or ""))):
        match = _BARE.match(part)
        if match is None:
            found = parse_gres(part)
            return None if found is None else gpus_of(found)
        entries.append(Gres(name="gpu", type=match["type"], count=int(match["count"])))
    return tuple(entries)


def gpus_of(entries: Iterable[Gres]) -> tuple[Gres, ...]:
    """Return only the GPU entries."""
    return tuple(entry for entry in entries if entry.name == "gpu")


def with_gpus(gres: str | None, gpu_type: str | None, count: int) -> str | None:
    """Return a gres list that asks `count` GPUs of a type and keeps all other entries.

    None where the list that stands now cannot be read.
    """
    entries = parse_gres(gres)
    if entries is None:
        return None
    kept = [entry for entry in entries if entry.name != "gpu"]
    return ",".join(map(str, [Gres(name="gpu", type=gpu_type, count=count), *kept]))


def like_form(old: str, gpu_type: str | None, count: int) -> str:
    """Return a GPU count in the form of `old`: `2` -> `4`, `h100:2` -> `h200:4`, else empty.

    Used for SLURM_GPUS and kin, which steps read again: an unknown form is emptied, because a
    stale one makes every srun of the job fail.
    """
    entries = parse_gpus(old)
    if not entries or len(entries) != 1 or "gpu" in old:
        return ""
    return f"{gpu_type}:{count}" if entries[0].type and gpu_type else str(count)


def request_of(submission: Submission, *, node_form: str = "gres") -> GpuRequest:
    """Return the GPU request of a job from its four tres_per_* fields, features and partition.

    `node_form` names the option behind tres_per_node (slurmctld does not tell --gres from
    --gpus-per-node).
    """
    n_nodes = submission.min_nodes or 1
    asked = _asked(submission, node_form)
    form = next(iter(asked), None)
    request = GpuRequest(n_nodes=n_nodes, form=form, forms=tuple(sorted(asked)))
    if form is None:
        return _with_named_type(request, submission)
    total = _total(asked, n_nodes, submission)
    per_node = None if total is None else -(-total // n_nodes)
    request = replace(request, total=total, per_node=per_node)
    sources = {
        entry.type: source for source, entries in asked.items() for entry in entries if entry.type
    }
    if len(sources) == 1:
        (gpu, source) = next(iter(sources.items()))
        return replace(request, type=gpu, type_source=source)
    return request if sources else _with_named_type(request, submission)


#: the entry of a request that cannot be read
_UNREADABLE: Final = Gres(name="?")


def _asked(submission: Submission, node_form: str) -> dict[str, tuple[Gres, ...]]:
    """Return the GPU entries of each option that asks for some, the decisive option first."""
    fields = (
        ("gpus", submission.tres_per_job),
        (node_form, submission.tres_per_node),
        ("gpus-per-task", submission.tres_per_task),
        ("gpus-per-socket", submission.tres_per_socket),
    )
    found = {}
    for form, text in fields:
        entries = parse_gres(text)
        gpus = (_UNREADABLE,) if entries is None else gpus_of(entries)
        if gpus:
            found[form] = gpus
    return found


def _total(
    asked: Mapping[str, tuple[Gres, ...]], n_nodes: int, submission: Submission
) -> int | None:
    """Return the GPUs on all nodes, None where they cannot be told."""
    form, entries = next(iter(asked.items()))
    if form == "gpus-per-socket" or any(_UNREADABLE in found for found in asked.values()):
        return None
    count = sum(entry.count for entry in entries)
    if form == "gpus-per-task":
        count *= submission.num_tasks or (submission.ntasks_per_node or 1) * n_nodes
    elif form != "gpus":
        count *= n_nodes
    return count if count <= _MOST_GPUS else None


def _with_named_type(request: GpuRequest, submission: Submission) -> GpuRequest:
    for source, text in (("constraint", submission.features), ("partition", submission.partition)):
        gpu = gpu_named_in(text)
        if gpu is not None:
            return replace(request, type=gpu, type_source=source)
    return request


def gpu_named_in(text: str | None) -> str | None:
    """Return the one GPU model that a partition or feature spells, None for none or several."""
    if not text or "!" in text or len(text) > _MAX_CHARS:
        return None
    names = {match["gpu"] for match in _GPU_TOKEN.finditer(text.lower())}
    return names.pop() if len(names) == 1 else None


def step_environment(
    environment: Mapping[str, str], gpu_type: str | None, total: int, n_tasks: int | None
) -> dict[str, str]:
    """Return the SLURM_GPUS* variables that must follow a new request for `total` GPUs on one node.

    sbatch has put them in the job's environment; left stale they make every srun step fail with
    "Invalid generic resource".
    """
    counts = {"SLURM_GPUS": total, "SLURM_GPUS_PER_NODE": total}
    tasks = n_tasks or 1
    if total % tasks == 0:
        counts["SLURM_GPUS_PER_TASK"] = total // tasks
    changed = {}
    for name, old in environment.items():
        if not old:
            continue
        if name == "SLURM_TRES_PER_TASK":
            changed[name] = _tres_per_task(old, gpu_type, counts.get("SLURM_GPUS_PER_TASK"))
        elif name in counts:
            changed[name] = like_form(old, gpu_type, counts[name])
        elif name in ("SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET"):
            changed[name] = ""
    return changed


def _tres_per_task(old: str, gpu_type: str | None, count: int | None) -> str:
    def renewed(part: str) -> str:
        match = re.match(
            r"^(?P<head>gres[:/]gpu)(?::(?P<type>[^:=]+(?=[:=])))?(?P<sep>[:=])\d+$", part
        )
        if match is None or count is None:
            return "" if "gpu" in part else part
        typed = f":{gpu_type}" if match["type"] and gpu_type else ""
        return f"{match['head']}{typed}{match['sep']}{count}"

    return ",".join(filter(None, map(renewed, _split_commas(old))))


def _split_commas(text: str) -> list[str]:
    """Split at commas outside of parentheses and brackets: `gpu:1(IDX:0,2),nvme:3`."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]
