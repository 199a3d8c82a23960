"""Where the daemon's state comes from: the site's files and its Slurm.

In: the folders with the site's configuration. Out: Loaded, with the decision bound to what was
read. Called by the loading thread only, so that it may take its time.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.catalog.local import FolderLookup
from omnipilot_slurm.cluster.reader import ClusterReader
from omnipilot_slurm.cluster.snapshot_file import FILE as SNAPSHOT_FILE
from omnipilot_slurm.cluster.snapshot_file import dump_snapshot
from omnipilot_slurm.cluster.source import CommandSource
from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.daemon.cache import AnswerCache
from omnipilot_slurm.daemon.follower import Follower
from omnipilot_slurm.daemon.publish import effective
from omnipilot_slurm.daemon.state import Decider, Loaded
from omnipilot_slurm.decide.decision import decide
from omnipilot_slurm.decide.outcome import outcome_of
from omnipilot_slurm.decide.preference import weights_of
from omnipilot_slurm.errors import SlurmError, StoreError
from omnipilot_slurm.records import Submission
from omnipilot_slurm.settings import FILE
from omnipilot_slurm.site_check import FILES, own_files
from omnipilot_slurm.site_files import Experience, SiteFiles, read_files
from omnipilot_slurm.store.database import open_for_reading
from omnipilot_slurm.store.served_loads import served_loads
from omnipilot_slurm.store.site_tables import launch_counts, wait_history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.records import Outcome
    from omnipilot_slurm.script.source import Expired
    from omnipilot_slurm.settings import DaemonSettings

#: asked before any job is, so that the first job does not pay for tables that are built once
_FIRST_QUESTIONS: Final = tuple(
    Submission(script=f"#!/bin/bash\nvllm serve {model}\n".encode(), tres_per_node="gpu:1")
    for model in ("meta-llama/Llama-3.1-405B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "no/such-model")
)
#: processor time for reading one script; over it the script is not told apart
READING_BUDGET_S: Final = 0.015
#: questions whose arms are kept; a dozen arms take 100 KB
_N_REMEMBERED: Final = 32
_SECONDS_PER_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class _Read:
    """What the last load found, for refreshes to build on."""

    files: SiteFiles
    folders: FolderLookup
    reader: ClusterReader
    snapshot: Snapshot
    experience: Experience
    experience_at: float
    store_fault: str | None
    documents: Mapping[str, str | None]


class SiteSource:
    """Reads the configuration in `folders`; `running` is the daemon section in use."""

    def __init__(self, folders: Sequence[Path], *, running: DaemonSettings) -> None:
        self._folders = folders
        self._running = running
        self._read: _Read | None = None
        self._follower = Follower()

    def load(self) -> Loaded:
        """Read everything anew; a cluster that does not answer stays as it was last seen.

        Raises: ConfigError.
        """
        files = read_files(self._folders)
        cluster = files.settings_file.settings.cluster
        reader = ClusterReader(
            CommandSource(timeout_s=cluster.command_timeout_s), slow_poll_s=cluster.slow_poll_s
        )
        snapshot, fault = self._snapshot(reader)
        self.close()
        folders = FolderLookup(roots=cluster.model_roots)
        experience, store_fault = _experience(files)
        documents: dict[str, str | None] = dict.fromkeys(FILES)
        documents |= {name: effective(file) for name, file in own_files(self._folders)}
        documents[FILE] = effective(files.settings_file.file)
        read = _Read(
            files, folders, reader, snapshot, experience, time.time(), store_fault, documents
        )
        loaded = self._loaded(read, fault)
        for submission in _FIRST_QUESTIONS:
            loaded.decide(submission)
        return loaded

    def refresh(self, loaded: Loaded) -> Loaded:
        """Read the cluster anew, keep the rest.

        Raises: SlurmError when Slurm does not answer.
        """
        if self._read is None:
            return loaded
        before = self._read
        now = time.time()
        files = before.files.with_model_in_force()
        read = replace(before, files=files, snapshot=before.reader.read(now))
        if (
            abs(now - before.experience_at)
            > before.files.settings_file.settings.cluster.slow_poll_s
        ):
            experience, fault = _experience(before.files)
            read = replace(read, experience=experience, experience_at=now, store_fault=fault)
        self._follower.follow(self._running.store, now)
        fresh = self._loaded(read, None)
        is_same = (
            replace(read.snapshot, taken_at=before.snapshot.taken_at) == before.snapshot
            and read.experience == before.experience
            and read.files is before.files
        )
        return replace(fresh, decide=loaded.decide) if is_same else fresh

    def close(self) -> None:
        """Let go of the process that reads model folders."""
        if self._read is not None:
            self._read.folders.close()

    def _snapshot(self, reader: ClusterReader) -> tuple[Snapshot, str | None]:
        try:
            return reader.read(time.time()), None
        except SlurmError as error:
            last = self._read.snapshot if self._read is not None else Snapshot(partitions=())
            return last, str(error)

    def _loaded(self, read: _Read, cluster_fault: str | None) -> Loaded:
        self._read = read
        settings_file = read.files.settings_file
        site = read.files.site(read.snapshot, read.folders, read.experience)
        return Loaded(
            decide=decider(site),
            summary={
                "restart_needed": settings_file.settings.daemon != self._running,
                "partitions": len(read.snapshot.partitions),
                "gpu_pools": len(site.pools),
                "cluster_read_at": read.snapshot.taken_at,
                "cluster_fault": cluster_fault,
                "store_fault": read.store_fault,
                "cost_model": read.files.predictor is not None,
                "site_model": str(read.files.cost_model.folder)
                if read.files.cost_model.folder
                else None,
                "site_model_fault": read.files.cost_model.fault,
            },
            documents={**read.documents, SNAPSHOT_FILE: dump_snapshot(read.snapshot)},
            poll_s=settings_file.settings.cluster.poll_s,
        )


def _experience(files: SiteFiles) -> tuple[Experience, str | None]:
    """Return what the site's own jobs tell of launches and waits, and why they cannot be read."""
    path = files.settings_file.settings.daemon.store
    if path is None or not path.exists():
        return files.experience(), None
    now = time.time()
    since_launches = now - files.assumed.launch.history_days * _SECONDS_PER_DAY
    since_waits = now - files.assumed.wait.history_days * _SECONDS_PER_DAY
    since_loads = now - files.assumed.load.history_days * _SECONDS_PER_DAY
    try:
        with closing(open_for_reading(path)) as connection:
            launches = launch_counts(connection, since_launches)
            waits = wait_history(connection, since_waits)
            served = list(served_loads(connection, since_loads))
    except StoreError as error:
        return files.experience(), str(error)
    return files.experience(launches, waits, served), None


def reading_budget() -> Expired:
    """Return a clock that runs out after READING_BUDGET_S of this thread's processor time.

    Processor time, not wall time: a busy machine must not turn a plain script into an unclear one.
    """
    end = time.thread_time() + READING_BUDGET_S
    return lambda: time.thread_time() > end


def decider(site: Site, *, budget: Callable[[], Expired] = reading_budget) -> Decider:
    """Return what decides on submissions for a site, each within a budget for reading its script.

    Its records also hold the weights in force, without which no choice can be learned from.
    """
    weights = weights_of(site.utility)
    site = replace(site, remembered=AnswerCache(_N_REMEMBERED))

    def decide_for_site(submission: Submission, /) -> Outcome:
        outcome = outcome_of(decide(submission, site, expired=budget()))
        return replace(outcome, record=partial(_weighed, outcome, weights))

    return decide_for_site


def _weighed(outcome: Outcome, weights: Mapping[str, float]) -> dict[str, object]:
    record = outcome.record() if callable(outcome.record) else outcome.record
    return {**record, "weights": weights}
