"""`omnipilot fit`: will this vLLM server start, why not, and the smallest change that does."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from omnipilot_slurm.catalog.local import FolderLookup, PatientFolders
from omnipilot_slurm.cli.detect import parse_variables
from omnipilot_slurm.cli.fit_question import Asked, Cluster, Held, Reader
from omnipilot_slurm.cli.fit_text import as_json, as_text
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.site_files import SiteFiles, read_files
from omnipilot_slurm.vllm.changes import smallest_changes
from omnipilot_slurm.vllm.fit import answer
from omnipilot_slurm.vllm.kv import CACHE_BYTES
from omnipilot_slurm.vllm.values import human_int_or_auto
from omnipilot_slurm.vllm.variables import with_variables
from omnipilot_slurm.vllm.versions import find_key

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER_S = 3.0
_AUTO = -1
_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_CODES = {Starts.STARTS: 0, Starts.FAILS: 3, Starts.UNSURE: 4}
_ENGINE = (
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enforce_eager",
    "executor",
    "vllm_version",
)


_ALSO_ENGINE = ("model", "max_model_len", "no_chunked_prefill")


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[JOB.sh | -- VLLM COMMAND]")
@click.option("--model", help="Model id, or a folder with its config.json.")
@click.option("--gpu", help="Card; of a pair 'X + Y' the weaker one decides.")
@click.option("--gpus", "n_gpus", type=click.IntRange(1), help="GPUs held, over all nodes.")
@click.option("--nodes", "n_nodes", type=click.IntRange(1), default=1, help="Nodes held.")
@click.option("--tp", "tensor_parallel", type=click.IntRange(1), default=1, help="TP degree.")
@click.option("--pp", "pipeline_parallel", type=click.IntRange(1), default=1, help="PP degree.")
@click.option("--dp", "data_parallel", type=click.IntRange(1), default=1, help="DP degree.")
@click.option("--ep", "expert_parallel", is_flag=True, help="Experts in parallel.")
@click.option("--dtype", type=click.Choice(_DTYPES), default="auto", help="Activations' type.")
@click.option("--quantization", help="Method, as vLLM's option.")
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(["auto", *CACHE_BYTES]),
    metavar="TYPE",
    default="auto",
    help="The cache's type.",
)
@click.option("--max-model-len", help="Context; 32k is 32000, 32K 32768, auto what fits.")
@click.option("--max-num-seqs", type=click.IntRange(1), help="Sequences in a step.")
@click.option("--max-num-batched-tokens", type=click.IntRange(1), help="Tokens in a step.")
@click.option(
    "--gpu-memory-utilization", type=click.FloatRange(0, 1, min_open=True), help="Share of memory."
)
@click.option("--enforce-eager", is_flag=True, help="No CUDA graphs.")
@click.option("--no-chunked-prefill", is_flag=True, help="Prefill in one piece.")
@click.option("--executor", type=click.Choice(["mp", "ray"]), help="How workers are started.")
@click.option("--vllm-version", help="Version that will run, if known.")
@click.option("--heads", type=click.IntRange(1), help="Attention heads of an unknown model.")
@click.option("--capability", help="Compute capability of an unknown card, like 8.0.")
@click.option("--env", "variables", multiple=True, metavar="K=V", help="A variable that is set.")
@click.option(
    "--config",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with the site's settings. [default: {SITE_FOLDER}]",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object a server.")
@click.pass_context
def fit(
    context: click.Context,
    /,
    *,
    words: tuple[str, ...],
    as_one_json: bool,
    config: Path | None,
    **options: Any,
) -> int:
    """Say whether a vLLM server starts, with every check and the smallest change that does.

    The server is told by options, by a batch script, or by a whole vLLM command behind `--`.
    Without --gpu only what holds on every card is decided.
    """
    if words:
        _refuse_beside_words(context)
    files = read_files([folder for folder in (config or SITE_FOLDER,) if folder.is_dir()])
    coefficients = files.startup
    folders = FolderLookup(roots=[Path("/")], public_only=False)
    reader = Reader(
        files.catalog,
        PatientFolders(folders, _FOLDER_S),
        vllm=files.settings_file.settings.vllm,
        cluster=_cluster(files),
    )
    try:
        asked = list(_asked(reader, words, options))
    finally:
        folders.close()
    verdicts = []
    for one in asked:
        report = answer(one.question, coefficients)
        changes = smallest_changes(one.question, report, coefficients)
        if as_one_json:
            shown = as_json(one.question, report, changes, one.said)
            click.echo(json.dumps(shown, ensure_ascii=False))
        else:
            click.echo(as_text(one.question, report, changes, one.said), nl=False)
        verdicts.append(report.verdict)
    for verdict in (Starts.FAILS, Starts.UNSURE):
        if verdict in verdicts:
            return _CODES[verdict]
    return _CODES[Starts.STARTS]


def _cluster(files: SiteFiles) -> Cluster:
    """Return the cards of the published cluster, those of the catalog where none is published."""
    settings = files.settings_file.settings
    published = files.published()
    if published is None:
        every = tuple(files.catalog.gpu(gpu_id) for gpu_id in files.catalog.gpu_ids())
        return Cluster(cards=every, gres=settings.cluster.gpu_map.gres)
    snapshot = load_snapshot(published.data, file=published.file)
    cards = {pool.gpu.id: pool.gpu for pool in files.pools(snapshot)}
    return Cluster(cards=tuple(cards.values()), gres=files.gpu_map(snapshot).gres)


def _refuse_beside_words(context: click.Context) -> None:
    """Refuse options of the engine beside a script or command, which says them itself."""
    for parameter in context.command.params:
        if parameter.name not in {*_ENGINE, *_ALSO_ENGINE} - {"vllm_version"}:
            continue
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{parameter.opts[0]} stands beside a script or command, which says it itself",
                hint="change it there, or describe the server by options alone",
            )


def _asked(reader: Reader, words: tuple[str, ...], options: dict[str, Any]) -> Iterator[Asked]:
    held = Held(
        **{name: options[name] for name in ("gpu", "n_gpus", "n_nodes", "heads", "capability")}
    )
    version = options["vllm_version"]
    if version is not None and find_key(version) is None:
        raise UsageError(f"--vllm-version must be like 0.10.2, was {version!r}")
    variables = parse_variables(options["variables"])
    if not words:
        yield reader.from_options(with_variables(_engine(options), variables), held)
    elif len(words) == 1 and Path(words[0]).is_file():
        yield from reader.from_script(Path(words[0]).read_bytes(), variables, version, held)
    else:
        yield reader.from_command(words, variables, version, held)


def _engine(options: dict[str, Any]) -> EngineArgs:
    length = options["max_model_len"]
    try:
        max_model_len = None if length is None else human_int_or_auto(length)
    except ValueError:
        max_model_len = 0
    if max_model_len is not None and max_model_len != _AUTO and max_model_len < 1:
        raise UsageError(f"--max-model-len must be like 8192, 32k or auto, was {length!r}")
    if isnan(options["gpu_memory_utilization"] or 0.0):
        raise UsageError("--gpu-memory-utilization must be above 0 and at most 1, was nan")
    return EngineArgs(
        model=options["model"],
        max_model_len=max_model_len,
        chunked_prefill=False if options["no_chunked_prefill"] else None,
        n_nodes=1,
        **{name: options[name] for name in _ENGINE},
    )
