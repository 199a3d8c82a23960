"""What tests ask of a sandbox's omnipilotd over its socket, as root."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnipilot_slurm.sandbox import Sandbox


def ask_daemon(site: Sandbox, **request: Any) -> dict[str, Any]:
    """Return the daemon's answer to one request."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(site.pilot_socket))
        connection.sendall(json.dumps({"v": 1, **request}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
        return answer


def reload(site: Sandbox) -> None:
    """Let the daemon read the cluster anew; it may be at it already."""
    for _ in range(50):
        answer = ask_daemon(site, op="reload")
        if answer.get("ok"):
            return
        assert answer["error"]["code"] == "busy", answer
        time.sleep(0.2)
