"""Watch one server: its start once, then what it delivers, stretch by stretch.

In: a `Watch`, and where figures go. Out: `ServerStart` and `Benchmark` rows, each handed over as
soon as it is whole, so that a collector killed at any point has lost the stretch under way and
nothing else. Called by `omnipilot collect`; the clock and the wire are handed in.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from omnipilot_slurm.collect.exposition import read_exposition
from omnipilot_slurm.collect.power import mean_power
from omnipilot_slurm.collect.server_metrics import Seen, Stretch, Unsteady, stretch
from omnipilot_slurm.collect.startup_log import read_start
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.ending import signs_of
from omnipilot_slurm.store.benchmarks import Benchmark, Load, Window
from omnipilot_slurm.store.server_starts import ServerStart
from omnipilot_slurm.store.setups import Setup, content_hash
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnipilot_slurm.collect.power import PowerSample

SOURCE: Final = "collect"
#: scrapes that may fail in a row before the server counts as gone
_MAX_FAILED: Final = 3
_ANSWER_S: Final = 5.0
_LOG_BYTES: Final = 4_000_000
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is watched, and how: times in s, `started_at` the Unix time at which the server was."""

    url: str
    setup: Setup
    started_at: float
    log: Path | None = None
    job_id: str | None = None
    start_timeout_s: float = 3600.0
    period_s: float = 10.0
    stretch_s: float = 300.0


class World(Protocol):
    """The clock, the wire and the GPUs."""

    def now(self) -> float:
        """Return the Unix time."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""

    def get(self, url: str, /) -> str | None:
        """Return what a GET answers with 200, None where it does not."""

    def power(self) -> PowerSample | None:
        """Return the power drawn now."""


class Sink(Protocol):
    """Where rows go; the same row again is the same row."""

    def start(self, row: ServerStart, /) -> None:
        """Keep a start."""

    def run(self, row: Benchmark, /) -> None:
        """Keep a stretch."""


def get(url: str) -> str | None:
    """Return the body of an answer with status 200, None where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 (checked by collect)
            return answer.read().decode("utf-8", "replace") if answer.status == 200 else None  # noqa: PLR2004 HTTP's OK
    except (OSError, urllib.error.URLError, ValueError):
        return None


class Collector:
    """Watches until the server is gone, or `until` (Unix time, s)."""

    def __init__(self, watch: Watch, world: World, sink: Sink, say: Callable[[str], None]) -> None:
        self._watch = watch
        self._world = world
        self._sink = sink
        self._say = say
        self._setup = watch.setup

    def run(self, until: float = float("inf")) -> LaunchOutcome:
        """Watch the start, then what is delivered; return how the start ended."""
        outcome, cold_start_s = self._await_start()
        self._keep_start(outcome, cold_start_s)
        if outcome is LaunchOutcome.OK:
            self._watch_load(until)
        return outcome

    def _await_start(self) -> tuple[LaunchOutcome, float | None]:
        """Return how the start ended, and how long it took where its end was seen."""
        deadline = self._world.now() + self._watch.start_timeout_s
        n_asked = 0
        while self._world.get(f"{self._watch.url}/health") is None:
            n_asked += 1
            complaint = signs_of(self._log_text()).complaint
            if complaint is not None:
                return complaint[0], None
            if self._world.now() >= deadline:
                return LaunchOutcome.TIMEOUT, None
            self._world.sleep(1.0)
        # one that was up when it was first asked came up at an unknown time
        took = self._world.now() - self._watch.started_at
        return LaunchOutcome.OK, took if n_asked else None

    def _log_text(self) -> str:
        if self._watch.log is None:
            return ""
        try:
            with self._watch.log.open("rb") as stream:
                return stream.read(_LOG_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _keep_start(self, outcome: LaunchOutcome, cold_start_s: float | None) -> None:
        said = read_start(self._log_text())
        version = _VERSION.match(said.version or "")
        software = self._setup.software
        if version is not None and software.vllm is None:
            self._setup = replace(self._setup, software=replace(software, vllm=version[0]))
        started = self._watch.started_at
        key = [SOURCE, self._watch.job_id, self._watch.url, round(started)]
        self._sink.start(
            ServerStart(
                content_hash=content_hash(key),
                started_at=started,
                observed_at=self._world.now(),
                setup=self._setup,
                outcome=outcome,
                figures=replace(said.figures, cold_start_s=cold_start_s),
                job_id=self._watch.job_id,
            )
        )
        self._say(f"start: {outcome.value}")

    def _watch_load(self, until: float) -> None:
        seen: list[Seen] = []
        power: list[PowerSample] = []
        n_failed = 0
        while n_failed < _MAX_FAILED and self._world.now() < until:
            found = self._scrape()
            n_failed = 0 if found is not None else n_failed + 1
            if found is not None:
                # a clock that was set back ends the stretch: what it measured has no length
                seen = [*(seen if not seen or found.at > seen[-1].at else []), found]
            sample = self._world.power()
            power += [] if sample is None else [sample]
            if seen and seen[-1].at - seen[0].at >= self._watch.stretch_s:
                self._end_stretch(seen, power)
                # the next stretch begins with the scrape that ended this one
                seen, power = seen[-1:], []
            self._world.sleep(self._watch.period_s)
        if len(seen) > 1:
            self._end_stretch(seen, power)

    def _scrape(self) -> Seen | None:
        text = self._world.get(f"{self._watch.url}/metrics")
        if text is None:
            return None
        try:
            return Seen(self._world.now(), read_exposition(text))
        except DataError as error:
            self._say(f"{self._watch.url}/metrics: {error}")
            return None

    def _end_stretch(self, seen: list[Seen], power: list[PowerSample]) -> None:
        found = stretch(seen)
        if isinstance(found, Unsteady):
            self._say(f"not kept: {found.why}")
            return
        row = self._benchmark(found, power)
        self._sink.run(row)
        rate = row.targets["output_tok_s"]
        self._say(f"kept: {rate:.0f} output tok/s at {found.concurrency:.0f} requests")

    def _benchmark(self, found: Stretch, power: list[PowerSample]) -> Benchmark:
        power_w, n_samples = mean_power(power, found.start, found.end)
        targets = dict(found.targets)
        if power_w is not None:
            targets["power_w"] = power_w
            targets["energy_per_tok_j"] = power_w / targets["output_tok_s"]
        key = [SOURCE, self._watch.job_id, self._watch.url, round(found.start, 3)]
        return Benchmark(
            content_hash=content_hash(key),
            source=SOURCE,
            setup=self._setup,
            load=Load(
                mode=found.load_mode,
                isl=_rounded(found.isl),
                osl=_rounded(found.osl),
                concurrency=_rounded(found.concurrency),
                n_requests=found.n_requests,
            ),
            targets=targets,
            measured_at=found.end,
            job_id=self._watch.job_id,
            window=Window(start=found.start, end=found.end, n_power_samples=n_samples),
            details={
                "n_preemptions": found.n_preemptions,
                "isl": found.isl,
                "osl": found.osl,
                "concurrency": found.concurrency,
            },
        )


def _rounded(value: float) -> float:
    """Return two digits of a load, so that stretches of one load fall into one cell."""
    return max(float(f"{value:.2g}"), 1.0)
