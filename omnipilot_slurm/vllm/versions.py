"""vLLM version strings: their order, and which one a script pins.

In: strings ("0.8.5.post1", "v0.9.2", "nightly") or the words, paths and module names of a script.
Out: sort keys, and a Pin or None. Called by the grammar, the defaults and the script reader. A
wrong guess is worse than none: what could be another program's number is not taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+){1,3})(?:[.-]?(?P<stage>rc|post)(?P<n>\d+))?(?P<dev>\.dev\d+)?"
    r"(?:\+[\w.]+)?"
)
_STAGES = {"rc": -1, None: 0, "post": 1}

# Every release so far is 0.minor.patch: a number that starts otherwise (3.11, 12.4, 25.09) is
# Python's, CUDA's or a vendor's calendar, never vLLM's.
_NUMBER = r"v?(?P<version>0\.\d{1,2}(?:\.\d{1,2}){0,2}(?:[.-]?(?:rc|post)\d+)?)(?![\d]|\.\d)"
_BUILD_WORDS = "openai|server|serve|gpu|cuda|rocm|gh200|aarch64|arm64|x86_64|amd64|env|venv"
_PINS = re.compile(
    rf"(?<![a-z\d])vllm(?:\.git)?(?:[-_](?:{_BUILD_WORDS}))*(?:\[[\w,-]*\])?"
    rf"(?:\s*==\s*|[-_:/@=])?{_NUMBER}"
    rf"|(?<![a-z\d_])vllm_(?:version|tag)\W{{1,3}}{_NUMBER.replace('?P<version>', '?P<named>')}"
    r"|(?<![a-z\d])vllm[-_]?(?P<parts>0_\d{1,2}_\d{1,2})(?![_\d])",
    re.IGNORECASE,
)
_UNPINNED_IMAGE = re.compile(r"(?<![a-z\d])vllm(?:-openai)?:(?:latest|nightly)", re.IGNORECASE)
# their tags count their own releases
_FOREIGN = re.compile(r"lmcache/|vllm-(?:ascend|tpu|flash-attn|omni)", re.IGNORECASE)


class Version(NamedTuple):
    """A version as it sorts; a release of two numbers leaves the patch open."""

    release: tuple[int, ...]
    stage: int = 0
    n: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether only major and minor are known."""
        return len(self.release) < 3  # noqa: PLR2004  (major.minor.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The version a script pins ("0.8.5"; "0.8" where the patch is not said), and by what text."""

    version: str
    text: str

    @property
    def is_partial(self) -> bool:
        """Whether only major and minor are known."""
        return parse_version(self.version).is_partial


@lru_cache(maxsize=256)
def find_key(text: str) -> Version | None:
    """Return the sort key of a version string, None for `latest`, `nightly` and other words."""
    match = _VERSION.fullmatch(text.strip())
    if not match:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    stage = _STAGES[match["stage"]]
    if match["dev"] and not match["stage"]:
        stage = _STAGES["rc"]
    return Version(release, stage, int(match["n"] or 0))


def parse_version(text: str) -> Version:
    """Return the sort key of a version string.

    Raises: ValueError when it is none.
    """
    key = find_key(text)
    if key is None:
        raise ValueError(f"vllm version must be like '0.10.2' or '0.8.5.post1', not {text!r}")
    return key


def find_version(texts: Iterable[str]) -> Pin | None:
    """Return the one version that image tags, modules, paths, pip pins and environments name.

    None when nothing names one, when two contradict each other, or when an image `:latest` or
    `:nightly` stands beside a pin. "0.8" and "0.8.5" agree: the longer one is returned.
    """
    pins: dict[str, str] = {}
    for text in texts:
        if "vllm" not in text.casefold():
            continue
        if _UNPINNED_IMAGE.search(text):
            return None
        for match in _PINS.finditer(text):
            if not _is_foreign(text, match.start()):
                pins.setdefault(_version_of(match), match[0])
    return _agreed(pins)


def _is_foreign(text: str, start: int) -> bool:
    word_start = max(text.rfind(" ", 0, start), text.rfind("\n", 0, start)) + 1
    return any(
        found.start() <= start <= found.end() for found in _FOREIGN.finditer(text, word_start)
    )


def _version_of(match: re.Match[str]) -> str:
    found = match["version"] or match["named"] or match["parts"].replace("_", ".")
    return found.lower().replace("-", ".")


def _agreed(pins: dict[str, str]) -> Pin | None:
    if not pins:
        return None
    longest = max(pins, key=len)
    if any(longest != other and not longest.startswith(other + ".") for other in pins):
        return None
    return Pin(version=longest, text=pins[longest])
