"""One cell of a plan: start the server, warm it up, measure until it is narrow, clean up.

In: a plan's folder and a cell's number. Out: result files of `vllm bench serve`, handed to `keep`
as they come, and the note of how it ended. Called by `omnipilot probe run`, in a job. A cell that
is done is not run again; one that was killed is, as far as the budget allows.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.collect.collector import get
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.probe.plan_file import (
    ended,
    note_begin,
    note_end,
    read_plan,
    spent_gpu_hours,
)
from omnipilot_slurm.probe.stopping import half_width_frac

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from omnipilot_slurm.probe.plan_file import Cell, Plan

_PORT: Final = "{port}"
_STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended: `why` in words, and output tok/s of its rounds without the warm-up."""

    why: str
    output_tok_s: tuple[float, ...]


def run_cell(
    folder: Path,
    number: int,
    keep: Callable[[Path, Cell], None],
    say: Callable[[str], None],
) -> Ended:
    """Run a cell and return how it ended.

    Raises: DataError when there is no such cell.
    """
    plan = read_plan(folder)
    if not 0 <= number < len(plan.cells):
        raise DataError(f"cell must be 0 to {len(plan.cells) - 1}, was {number}")
    cell = plan.cells[number]
    before = ended(folder).get(number)
    if before is not None:
        return Ended(f"it was done before: {before['why']}", ())
    left = plan.budget_gpu_hours - spent_gpu_hours(folder, plan)
    if left < cell.max_gpu_hours:
        why = f"{left:.2f} GPU-hours are left, it may take {cell.max_gpu_hours:.2f}"
        return Ended(why, ())
    began = time.time()
    note_begin(folder, number, began)
    found = _measured(plan, cell, folder / f"cell-{number}", keep, say)
    note_end(
        folder,
        number,
        {
            "why": found.why,
            "output_tok_s": found.output_tok_s,
            "gpu_hours": cell.n_gpus * (time.time() - began) / 3600,
            "begun": f"{number}-{began:.3f}",
        },
    )
    return found


def _measured(
    plan: Plan,
    cell: Cell,
    folder: Path,
    keep: Callable[[Path, Cell], None],
    say: Callable[[str], None],
) -> Ended:
    end = time.monotonic() + 60 * cell.max_minutes
    port = _free_port()
    folder.mkdir(exist_ok=True)
    rates: list[float] = []
    with _server(_with_port(cell.serve, port), folder / "server.log") as server:
        while get(f"http://127.0.0.1:{port}/health") is None:
            if server.poll() is not None:
                return Ended(f"the server ended with {server.returncode}", ())
            if time.monotonic() >= end:
                return Ended("the server did not come up in time", ())
            time.sleep(0.5)
        # the first round warms up: compiled kernels, caches, the allocator
        for number in range(plan.max_rounds + 1):
            result = _round(_with_port(cell.bench, port), folder / f"round-{number}", end)
            if result is None:
                return Ended("a round failed or was out of time", tuple(rates))
            if number == 0:
                continue
            keep(result, cell)
            rates.append(float(json.loads(result.read_text())["output_throughput"]))
            width = half_width_frac(rates)
            say(f"round {number}: {rates[-1]:.1f} output tok/s, interval +- {100 * width:.1f} %")
            if width <= plan.width_frac:
                why = f"{mean(rates):.1f} output tok/s +- {100 * width:.1f} % (95 %)"
                return Ended(why, tuple(rates))
    return Ended(f"{plan.max_rounds} rounds did not make it narrow", tuple(rates))


def _round(words: Sequence[str], folder: Path, end: float) -> Path | None:
    """Run the client once and return its result file, None where it failed or had no time."""
    folder.mkdir(exist_ok=True)
    left = end - time.monotonic()
    if left <= 0:
        return None
    command = [*words, "--result-dir", str(folder)]
    try:
        with (folder / "client.log").open("wb") as log:
            subprocess.run(command, stdout=log, stderr=log, timeout=left, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(sorted(folder.glob("*.json"))), None)


@contextmanager
def _server(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own, which is ended whole."""
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 (the plan's own words, no shell)
            words, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            # the whole group has ended
            process.wait()
            return
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


def _with_port(words: Sequence[str], port: int) -> list[str]:
    return [word.replace(_PORT, str(port)) for word in words]


def _free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
