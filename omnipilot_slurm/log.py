"""Log lines of this daemon: one event a line, `key=value` after it, on standard error.

In: an event and its fields. Out: text for the logging module. Values are quoted where needed, so
that nothing a user wrote can begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import re
import sys

_PLAIN = re.compile(r"[\w./:@%+,-]+", re.ASCII)
#: journald reads these marks as the line's severity (sd-daemon(3))
_SEVERITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


def line(event: str, **fields: object) -> str:
    """Return `event key=value ...`; a field that is None is left out."""
    shown = (f"{key}={_value(value)}" for key, value in fields.items() if value is not None)
    return " ".join((event, *shown))


def set_up(level: str, *, journal: bool) -> None:
    """Send the package's log to standard error, with journald's marks or with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JournalFormatter() if journal else _TimedFormatter())
    root = logging.getLogger("omnipilot_slurm")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class _TimedFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


class _JournalFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"<{_SEVERITY.get(record.levelno, 6)}>"
        return "\n".join(mark + part for part in super().format(record).splitlines())
