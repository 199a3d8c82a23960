"""What kind of work a program is, when it is not `vllm serve`: by its name and its arguments.

In: the words of one program behind its wrappers. Out: a Kind. Called by reader.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(StrEnum):
    """What a script, or one program in it, does with language models."""

    SERVER = "server"
    OFFLINE = "offline"
    BENCH = "bench"
    CLIENT = "client"
    GENERATOR = "generator"
    TRAINING = "training"
    OTHER_SERVER = "other_server"
    OPAQUE = "opaque"
    NONE = "none"


#: which kind a script is when several are in it and none is a server, strongest first
STRENGTH: Final = (
    Kind.SERVER,
    Kind.OFFLINE,
    Kind.BENCH,
    Kind.TRAINING,
    Kind.OTHER_SERVER,
    Kind.OPAQUE,
    Kind.GENERATOR,
    Kind.CLIENT,
    Kind.NONE,
)
_OTHER_SERVERS: Final = frozenset(
    "text-generation-launcher text-embeddings-router ollama lmdeploy trtllm-serve tritonserver"
    " llama-server llamafile mlc_llm xinference xinference-local aphrodite infinity_emb tabbyapi"
    " lightllm llamafactory-cli".split()
)
_OTHER_MODULES: Final = re.compile(
    r"^(?:sglang\.|lmdeploy|llama_cpp|lightllm|aphrodite\.|fastchat\.serve\.(?:vllm|model)_worker"
    r"|mlc_llm|text_generation_server|tensorrt_llm|infinity_emb|exllamav)"
)
_OTHER_FILES: Final = re.compile(r"(?:^|/)(?:sglang/launch_server|fastchat/serve/\w+worker)\.py$")
_OTHER_IMAGES: Final = re.compile(
    r"sglang|text-generation-inference|ollama|tritonserver|lmdeploy|trtllm|llama\.cpp|aphrodite"
)
_CLIENTS: Final = frozenset("guidellm genai-perf aiperf evalscope inspect http litellm".split())
_EVALUATORS: Final = frozenset({"lm_eval", "lm-eval"})
_TRAIN_LAUNCHERS: Final = frozenset("torchrun accelerate deepspeed horovodrun colossalai".split())
#: Python packages that roll out with vLLM unless they are told otherwise
_TRAINERS: Final = frozenset({"trl", "verl"})
_APP_SERVERS: Final = frozenset("uvicorn gunicorn hypercorn fastapi serve make just task".split())
_TRAIN: Final = re.compile(
    r"(?<!pre)train(?!ed)|(?<![a-z])(?:grpo|ppo|dpo|rlhf|rloo|sft|verl|openrlhf|finetune|fine_tune"
    r"|algo=)"
)
#: nvllm is something else
_VLLM: Final = re.compile(r"(?<!\bn)vllm", re.IGNORECASE)
_COULD_SERVE: Final = re.compile(r"(?<!\bn)vllm|(?<![a-z])(?:serve|engine|launch)", re.IGNORECASE)
#: a command that is neither a known program nor a function of the script: perhaps of a sourced file
_COMMAND_COULD_SERVE: Final = re.compile(
    r"vllm|^(?:start|run|launch|serve|deploy|spawn)_\w*(?:serve|engine|llm|model)"
    r"|^(?:serve|launch)_\w+$",
    re.IGNORECASE,
)
#: scripts whose names say that they do something else than serve
_HARMLESS: Final = re.compile(
    r"^(?:set_?up|install|download|fetch|pull|build|clean(?:up)?|stop|kill|wait|health|check|test"
    r"|convert|preprocess|prepare|upload|submit|monitor|poll|activate|env|load_modules|rustup|miniconda|miniforge)",
    re.IGNORECASE,
)
_URL: Final = re.compile(r"https?://")
_LOCAL_URL: Final = re.compile(r"https?://(?:localhost|127\.|0\.0\.0\.0|\[::1?\])")
_API_PATH: Final = re.compile(r"/v1(?:/|\b)|/health|/generate|/completions|/models\b|/metrics")
_URL_OPTION: Final = re.compile(
    r"^--?(?:\w+[-_])?(?:base[-_]?url|api[-_]?base|api[-_]?url|server[-_]?url"
    r"|endpoint(?:[-_]url)?)(?:=|$)"
)
_URL_VARIABLE: Final = re.compile(r"(?:BASE_URL|API_BASE|API_URL|VLLM_URL|SERVER_URL|ENDPOINT)$")
_PLAIN_MODULES: Final = frozenset(
    "pip venv virtualenv ensurepip http json compileall site uv py_compile pytest timeit"
    " ipykernel notebook jupyter zipfile tarfile grpc_tools".split()
)
_SYSTEM_FOLDERS: Final = ("/bin/", "/usr/", "/sbin/", "/opt/slurm/")
#: programs that are what their names say wherever they are installed
_TOOLS: Final = frozenset(
    "perl ruby Rscript julia node java matlab pip pip3 uv uvx conda mamba micromamba poetry pixi"
    " huggingface-cli hf git jq nvidia-smi rocm-smi aws gsutil rclone rsync tar unzip cmake ray"
    " wandb tensorboard jupyter pytest apptainer singularity docker podman module ml sbatch scancel"
    " squeue scontrol sacct vllm awk sed grep tee date hostname nvcc gcc make ninja cargo go"
    " npm".split()
)
_SCRIPT_SUFFIXES: Final = (".sh", ".bash", ".slurm", ".sbatch", ".zsh", ".run")
_OWN_FOLDERS: Final = ("./", "../", "~/", "?/")


def is_python(name: str) -> bool:
    """Return whether a program's base name is a Python interpreter."""
    return re.fullmatch(r"(?:python|pypy)[\d.]*", name) is not None


def names_a_server(variable: str) -> bool:
    """Return whether a variable's name says that it holds the address of a server."""
    return _URL_VARIABLE.search(variable) is not None


def of_program(name: str, path: str, args: list[str], *, images: Iterable[str] = ()) -> Kind:
    """Return the kind of a program that is neither vLLM nor Python.

    `args` are its arguments' texts with `?` for what is not known.
    """
    text = " ".join(args)
    known = _of_known_program(name, args, text)
    if known is not None:
        return known
    if any(_OTHER_IMAGES.search(image.lower()) for image in images):
        return Kind.OTHER_SERVER
    if name in _APP_SERVERS:
        is_harmless = all(arg.startswith("-") or _HARMLESS.match(arg) for arg in args)
        return Kind.OPAQUE if _COULD_SERVE.search(text) and not is_harmless else Kind.NONE
    return Kind.OPAQUE if _is_own_program(name, path) else Kind.NONE


def _of_known_program(name: str, args: list[str], text: str) -> Kind | None:
    first = args[0] if args else ""
    if name in _OTHER_SERVERS or (name == "sglang" and first == "serve"):
        return Kind.OTHER_SERVER
    if name in ("trl", "swift"):
        return _framework(first, text)
    if name in _TRAIN_LAUNCHERS:
        return _launched(text)
    if name in ("curl", "wget"):
        is_remote = _URL.search(text) and not _LOCAL_URL.search(text)
        return Kind.CLIENT if is_remote and _API_PATH.search(text) else Kind.NONE
    if name in _CLIENTS:
        return Kind.CLIENT
    if name in _EVALUATORS or name == "lighteval":
        return _evaluation(name, args, text)
    if name == "sbatch":
        return Kind.GENERATOR
    if name in ("docker", "podman") and "compose" in args:
        return Kind.OPAQUE
    if name == "ray" and first == "job":
        return Kind.OPAQUE if _COULD_SERVE.search(text) else Kind.NONE
    return None


def _framework(verb: str, text: str) -> Kind:
    """Return the kind of trl and swift, which embed vLLM."""
    if not _VLLM.search(text):
        return Kind.NONE
    kinds = {"deploy": Kind.OTHER_SERVER, "infer": Kind.OFFLINE, "eval": Kind.OFFLINE}
    return kinds.get(verb, Kind.TRAINING)


def _evaluation(name: str, args: list[str], text: str) -> Kind:
    if name == "lighteval":
        is_engine, is_client = args[:1] == ["vllm"], args[:1] == ["endpoint"]
    else:
        is_engine = re.search(r"--model[= ]vllm(?:\s|$|-vlm)", text) is not None
        is_client = re.search(r"--model[= ](?:local-|openai-)", text) is not None
    if is_engine:
        return Kind.OFFLINE
    return Kind.CLIENT if is_client or _URL.search(text) else Kind.NONE


def _is_own_program(name: str, path: str) -> bool:
    """Return whether a program is the user's own, and could be or start the server."""
    if name in _TOOLS or (_HARMLESS.match(name) and not _VLLM.search(name)):
        return False
    if name.endswith(_SCRIPT_SUFFIXES) or path.startswith(_OWN_FOLDERS):
        return True
    if "/" in path:
        return not path.startswith(_SYSTEM_FOLDERS)
    return _COMMAND_COULD_SERVE.search(name) is not None


def of_shell_script(name: str) -> Kind:
    """Return the kind of `bash FILE` where the file is not seen."""
    is_harmless = _HARMLESS.match(name) and not _VLLM.search(name)
    return Kind.NONE if is_harmless else Kind.OPAQUE


def could_serve(text: str) -> bool:
    """Return whether a name or its arguments name vllm, serve, engine or launch."""
    return _COULD_SERVE.search(text) is not None


def of_python(target: str, args: list[str], *, is_module: bool, urls: Iterable[str] = ()) -> Kind:
    """Return the kind of a Python program that is not vLLM's own.

    `target` is the module or file, `urls` the values of variables that name a server.
    """
    name = target if is_module else target.rsplit("/", 1)[-1]
    last = name.rsplit(".", maxsplit=1)[-1] if is_module else name
    text = " ".join([name, *args])
    known = _of_known_python(target, name, args, is_module=is_module)
    if known is not None:
        return known
    calls = [text, *urls]
    is_client = any(map(_URL_OPTION.match, args)) or any(map(_URL.search, calls))
    is_local = any(map(_LOCAL_URL.search, calls))
    starts_it = is_local and _COULD_SERVE.search(last) and not _HARMLESS.match(last)
    if is_client and not starts_it:
        return Kind.CLIENT
    if _TRAIN.search(text.lower()):
        return Kind.TRAINING if _VLLM.search(text) else Kind.NONE
    return Kind.OPAQUE if _COULD_SERVE.search(text) else Kind.NONE


def _of_known_python(target: str, name: str, args: list[str], *, is_module: bool) -> Kind | None:
    if re.search(r"benchmark_serving", name):
        return Kind.CLIENT
    if re.search(r"benchmark_(?:throughput|latency)", name):
        return Kind.BENCH
    if not is_module:
        return _of_known_file(target, name, args)
    package = name.partition(".")[0]
    if package in _PLAIN_MODULES:
        return Kind.NONE
    if _OTHER_MODULES.match(name):
        return Kind.OTHER_SERVER
    if package in _TRAINERS:
        return Kind.TRAINING
    if name.startswith(("torch.distributed", "accelerate.", "deepspeed")):
        return _launched(" ".join(args))
    if package in ("lm_eval", "lighteval"):
        return _evaluation(package, args, " ".join(args))
    return None


def _of_known_file(path: str, name: str, args: list[str]) -> Kind | None:
    if _OTHER_FILES.search(path):
        return Kind.OTHER_SERVER
    if name in _EVALUATORS or path.endswith("lm_eval/__main__.py"):
        return _evaluation("lm_eval", args, " ".join(args))
    return None


def _launched(text: str) -> Kind:
    """Return the kind of a program under torchrun and kin: it occupies GPUs either way."""
    if not _VLLM.search(text):
        return Kind.NONE
    return Kind.TRAINING if _TRAIN.search(text.lower()) or "use_vllm" in text else Kind.OPAQUE


def occupies_gpus(name: str, args: list[str]) -> bool:
    """Return whether a program beside a server is likely to work on the same GPUs."""
    if name in _TRAIN_LAUNCHERS or name in _OTHER_SERVERS:
        return True
    text = " ".join(args)
    if name in _EVALUATORS:
        return re.search(r"--model[= ](?:vllm|hf)\b", text) is not None
    return is_python(name) and _TRAIN.search(text.lower()) is not None
