"""The process that reads one folder at a time, with a deadline on each.

In: a request as folder_worker takes it. Out: ModelFacts or Failure, at the latest when the
deadline passes; the process is then killed and the next request starts another. Called by the
thread of catalog.local.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from omnipilot_slurm.catalog.facts_json import facts_from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import ModelFacts

WORKER = (sys.executable, "-m", "omnipilot_slurm.catalog.folder_worker")
#: so many processes may hang on a dead mount before no more are started
_MAX_STUCK = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """A folder that gave no facts, and why."""

    reason: str


class FolderProcess:
    """A worker process: started when needed, killed when it is late."""

    def __init__(self, command: Sequence[str], deadline_s: float) -> None:
        self._command, self._deadline_s = tuple(command), deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stuck: list[subprocess.Popen[bytes]] = []

    def ask(self, request: dict[str, object]) -> ModelFacts | Failure:
        """Have one folder read within the deadline."""
        path = request["path"]
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if len(self._stuck) >= _MAX_STUCK:
            return Failure(f"{path} is not read: {_MAX_STUCK} readers hang on a dead mount")
        try:
            line = self._exchange((json.dumps(request) + "\n").encode())
        except OSError as error:
            self.stop()
            return Failure(f"{path} is not read: the reader cannot be run: {error.strerror}")
        if not line:
            self.stop()
            late = f"did not answer within {self._deadline_s:g} s"
            return Failure(f"{path} {late if line is None else 'ended the process that read it'}")
        answer = json.loads(line)
        if "facts" in answer:
            return facts_from_json(answer["facts"])
        return Failure(str(answer["failure"]))

    def stop(self) -> None:
        """Kill the process without waiting for it: on a dead mount it dies when the mount does."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)

    def _exchange(self, request: bytes) -> bytes | None:
        """Send a line and return the one that comes back; see _line_within."""
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        return _line_within(process.stdout, self._deadline_s)


def _line_within(stream: IO[bytes], deadline_s: float) -> bytes | None:
    """Read one line from a pipe; None where the deadline passes, b"" where the pipe ends."""
    end, line = time.monotonic() + deadline_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, end - time.monotonic())):
                return None
            part = stream.read(2**16)
            if not part:
                return b""
            line += part
    return line
