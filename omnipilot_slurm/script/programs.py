"""What kind of work a program is, when it is not `vllm serve`: by its name and its arguments.

In: the words of one program behind its wrappers. Out: a Kind and what else a reader must know of
it. Called by serving.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


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
    " lightllm".split()
)
_OTHER_MODULES: Final = re.compile(
    r"^(?:sglang\.|lmdeploy|llama_cpp|lightllm|aphrodite\.|fastchat\.serve\.(?:vllm_worker|model_worker)"
    r"|mlc_llm|text_generation_server|tensorrt_llm|infinity_emb|exllamav)"
)
_OTHER_IMAGES: Final = re.compile(
    r"sglang|text-generation-inference|ollama|tritonserver|lmdeploy|trtllm|llama\.cpp|aphrodite"
)
_CLIENTS: Final = frozenset("guidellm genai-perf aiperf evalscope inspect curl wget http".split())
_TRAIN_LAUNCHERS: Final = frozenset("torchrun accelerate deepspeed horovodrun colossalai".split())
_TRAIN: Final = re.compile(
    r"train|(?<![a-z])(?:grpo|ppo|dpo|rlhf|rloo|sft|verl|openrlhf|finetune|fine_tune|algo=)"
)
_VLLM: Final = re.compile(r"vllm", re.IGNORECASE)
_COULD_SERVE: Final = re.compile(r"vllm|(?<![a-z])(?:serve|engine|launch)", re.IGNORECASE)
_URL: Final = re.compile(r"https?://")
_LOCAL_URL: Final = re.compile(r"https?://(?:localhost|127\.|0\.0\.0\.0|\[::1?\])")
_URL_OPTION: Final = re.compile(
    r"^--?(?:\w+[-_])?(?:base[-_]?url|api[-_]?base|api[-_]?url|server[-_]?url|endpoint(?:[-_]url)?)(?:=|$)"
)
_URL_VARIABLE: Final = re.compile(r"(?:BASE_URL|API_BASE|API_URL|VLLM_URL|SERVER_URL|ENDPOINT)$")
_PLAIN_MODULES: Final = frozenset(
    "pip venv virtualenv ensurepip http.server json.tool compileall site uv py_compile pytest timeit".split()
)
_SYSTEM_FOLDERS: Final = ("/bin/", "/usr/", "/sbin/", "/opt/slurm/")
_INTERPRETERS: Final = frozenset("perl ruby Rscript julia node java Rscript matlab".split())
_SCRIPT_SUFFIX: Final = (".sh", ".bash", ".slurm", ".sbatch", ".zsh", ".run")


def is_python(name: str) -> bool:
    """Return whether a program's base name is a Python interpreter."""
    return re.fullmatch(r"(?:python|pypy)[\d.]*", name) is not None


def of_program(name: str, path: str, args: list[str], *, images: list[str]) -> Kind:
    """Return the kind of a program that is neither vLLM nor Python.

    `args` are its arguments' texts with `?` for what is not known.
    """
    text = " ".join(args)
    if name in _OTHER_SERVERS or (name == "sglang" and args[:1] == ["serve"]):
        return Kind.OTHER_SERVER
    if name == "trl":
        return Kind.TRAINING if _VLLM.search(text) else Kind.NONE
    if name in _TRAIN_LAUNCHERS:
        return _launched(text)
    if name in ("curl", "wget"):
        return Kind.CLIENT if _URL.search(text) and not _LOCAL_URL.search(text) else Kind.NONE
    if name in _CLIENTS:
        return Kind.CLIENT
    if name == "lm_eval" or name == "lm-eval":
        return (
            Kind.OFFLINE
            if _is_vllm_backend(args)
            else Kind.CLIENT
            if _URL.search(text)
            else Kind.NONE
        )
    if name == "lighteval" and args[:1] == ["vllm"]:
        return Kind.OFFLINE
    if name == "sbatch":
        return Kind.GENERATOR if any(arg.startswith("--wrap") for arg in args) else Kind.NONE
    if name.endswith(_SCRIPT_SUFFIX) or path.startswith(("./", "../", "~/", "$")):
        return Kind.OPAQUE
    if "/" in path and not path.startswith(_SYSTEM_FOLDERS) and name not in _INTERPRETERS:
        return Kind.OPAQUE
    if any(_OTHER_IMAGES.search(image.lower()) for image in images):
        return Kind.OTHER_SERVER
    if name in ("serve", "ray") and (name == "serve" or args[:1] == ["job"]):
        return Kind.OPAQUE if _COULD_SERVE.search(text) else Kind.NONE
    return Kind.NONE


def of_python(target: str, args: list[str], *, is_module: bool, urls: list[str]) -> Kind:
    """Return the kind of a Python program that is not vLLM's own.

    `target` is the module or file, `urls` the values of variables that name a server.
    """
    name = target if is_module else target.rsplit("/", 1)[-1]
    text = " ".join([name, *args])
    if is_module and name.split(".")[0] in _PLAIN_MODULES | {"http", "json"}:
        return Kind.NONE
    if is_module and _OTHER_MODULES.match(name):
        return Kind.OTHER_SERVER
    if is_module and name.startswith(("torch.distributed", "accelerate.", "deepspeed")):
        return _launched(" ".join(args))
    if re.search(r"benchmark_serving", name):
        return Kind.CLIENT
    if re.search(r"benchmark_(?:throughput|latency)", name):
        return Kind.BENCH
    if is_module and name in ("lm_eval", "lm_eval.__main__"):
        return of_program("lm_eval", "lm_eval", args, images=[])
    if any(map(_URL_OPTION.match, args)) or _URL.search(text) or urls:
        return Kind.CLIENT
    if _TRAIN.search(text.lower()):
        return Kind.TRAINING if _VLLM.search(text) else Kind.NONE
    return Kind.OPAQUE if _COULD_SERVE.search(text) else Kind.NONE


def names_a_server(variable: str) -> bool:
    """Return whether a variable's name says that it holds the address of a server."""
    return _URL_VARIABLE.search(variable) is not None


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
    return is_python(name) and _TRAIN.search(text.lower()) is not None


def _is_vllm_backend(args: list[str]) -> bool:
    joined = " ".join(args)
    return re.search(r"--model[= ]vllm(?:\s|$|-vlm)", joined) is not None
