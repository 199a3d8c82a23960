"""docker run, apptainer exec and their kin: the image, and the program inside it.

In: a command that starts with a container runtime. Out: the program inside, or the note that the
words are arguments of the image's own server. Called by wrappers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script.unwrapped import SHELLS, Unwrapped, behind_options, behind_verb
from omnipilot_slurm.script.words import Splice, Word, Words, text_of, texts_of

if TYPE_CHECKING:
    from omnipilot_slurm.script.wrapper_rules import Rule

_NOT_MODELS: Final = SHELLS | {"vllm", "python", "python3", "env", "sleep", "nvidia-smi"}
_OFFICIAL: Final = re.compile(r"vllm[-_]openai")
_IMAGE: Final = re.compile(
    r"\.(?:sif|simg|img|sqsh|sqfs)$|^(?:docker|oras|library|instance)://|^\w[\w./-]*:\S+$"
)
_IMAGE_VARIABLE: Final = re.compile(r"SIF|IMG|IMAGE|CONTAINER|SINGULARITY|APPTAINER", re.IGNORECASE)
_DEVICES: Final = re.compile(r"(?:^|[=,])(?P<name>(?:CUDA|HIP|ROCR|NVIDIA)_VISIBLE_DEVICES)=")
#: options by which vLLM's own server is told apart from other programs behind an image
_SERVER_OPTIONS: Final = frozenset(
    "--tensor-parallel-size --max-model-len --gpu-memory-utilization --served-model-name".split()
)


def unwrap(found: Unwrapped, rule: Rule) -> bool:
    """Take a container runtime away; False where it does not run a program."""
    given = found.words[1:]
    is_instance = bool(given) and text_of(given[0]) == "instance"
    rest = behind_verb(given[1:] if is_instance else given, rule)
    if rest is None:
        return False
    verb = next(t for t in map(text_of, given) if t in rule.verbs.split())
    values: dict[str, Word] = {}
    words = _from_image_on(behind_options(rest, rule, values), rule)
    if not words:
        return False
    image, inside = words[0], words[2 if is_instance else 1 :]
    name = image.shown if isinstance(image, Word) else "?"
    found.images.append(name)
    if "gpus" in values and "device" in values["gpus"].shown:
        found.environment["CUDA_VISIBLE_DEVICES"] = None
    options = rest[: len(rest) - len(words)]
    found.environment |= dict(filter(None, map(_device_choice, options)))
    entrypoint = values.get("entrypoint")
    if entrypoint is not None and entrypoint.text:
        found.words = [entrypoint, *inside]
    else:
        found.words = inside
        found.entrypoint = verb == "run" and _is_entrypoint(name.lower(), inside)
    return bool(found.words) or found.entrypoint


def _device_choice(word: Word | Splice) -> tuple[str, Word] | None:
    """Return the variable that an option's `NAME=VALUE` sets, where it chooses devices."""
    match = _DEVICES.search(word.shown) if isinstance(word, Word) else None
    if match is None or not isinstance(word, Word):
        return None
    return match["name"], word.part(match.end())


def _from_image_on(words: Words, rule: Rule) -> Words:
    """Return the words from the image on, behind expansions that hold more options."""
    while words and isinstance(words[0], Splice):
        first, behind = words[0], words[1:]
        is_image = any(map(_IMAGE_VARIABLE.search, first.depends))
        next_word = text_of(behind[0]) if behind else None
        if is_image or (next_word is not None and not _continues_options(next_word)):
            return words
        words = behind_options(behind, rule, {})
    return words


def _continues_options(text: str) -> bool:
    return text.startswith("-") or _IMAGE.search(text) is not None


def _is_entrypoint(image: str, words: Words) -> bool:
    """Return whether the words behind an image are arguments of the image's own vLLM server."""
    if not words:
        return _OFFICIAL.search(image) is not None
    first = text_of(words[0])
    if first is None:
        return "vllm" in image or _has_server_option(words)
    if not first.startswith("-"):
        could_be_model = first not in _NOT_MODELS and "/" in first
        is_official = _OFFICIAL.search(image) is not None and "/" in first[1:]
        return could_be_model and (is_official or _has_server_option(words))
    names_model = any(text == "--model" or text.startswith("--model=") for text in texts_of(words))
    return "vllm" in image or names_model or _has_server_option(words)


def _has_server_option(words: Words) -> bool:
    names = {text.partition("=")[0].replace("_", "-") for text in texts_of(words)}
    return not _SERVER_OPTIONS.isdisjoint(names)
