"""What a job's texts say of it: the tag of its decision, a name that says vLLM. Pure.

In: AdminComment or job name. Out: the decision's id, or whether it is a server. Called by
accounting and decided.
"""

from __future__ import annotations

import re
from typing import Final

# plain, or a key of the JSON that another tool keeps there
_TAG: Final = re.compile(
    r"\bomnipilot\"?\s*[=:]\s*\"?([\w-]+):(?:pass|advise|rewrite|reject|abstain)\b"
)
_SERVES: Final = re.compile(r"(?<![a-z])vllm(?![a-z])", re.IGNORECASE)


def decision_of(admin_comment: str) -> str | None:
    """Return the id of the last decision that a job's AdminComment is tagged with."""
    found = _TAG.findall(admin_comment) if admin_comment else None
    return found[-1] if found else None


def is_named_server(name: str) -> bool:
    """Return whether a job's name says that it serves with vLLM."""
    return _SERVES.search(name) is not None
