"""State is swapped whole, and a load that fails leaves it as it was and says so."""

from __future__ import annotations

import gc
import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.daemon.state import Loaded, State, States
from omnipilot_slurm.errors import ConfigError, Fault, SlurmError
from omnipilot_slurm.records import Outcome, Submission, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 10.0


def advise(_submission: Submission) -> Outcome:
    return Outcome(verdict=Verdict.ADVISE)


class Scripted:
    """A source that loads, or raises, what a test put in it."""

    def __init__(self) -> None:
        self.next: Loaded | BaseException = Loaded(decide=advise, summary={"models": 3})
        self.refreshed: Loaded | BaseException | None = None
        self.calls: list[str] = []

    def load(self) -> Loaded:
        self.calls.append("load")
        loaded = self._give(self.next)
        return replace(loaded, decide=partial(loaded.decide))

    def refresh(self, loaded: Loaded) -> Loaded:
        self.calls.append("refresh")
        return loaded if self.refreshed is None else self._give(self.refreshed)

    def close(self) -> None:
        self.calls.append("close")

    def _give(self, what: Loaded | BaseException) -> Loaded:
        if isinstance(what, BaseException):
            raise what
        return what


@pytest.fixture
def source() -> Scripted:
    return Scripted()


@pytest.fixture
def swaps() -> list[State]:
    return []


@pytest.fixture
def states(source: Scripted, swaps: list[State]) -> Iterator[States]:
    states = States(source, swapped=swaps.append)
    yield states
    states.close()


def test_every_job_passes_as_not_ready_before_the_first_state(states: States) -> None:
    outcome = states.current.loaded.decide(Submission(script=b""))
    assert (outcome.verdict, outcome.code) == (Verdict.PASS, "not_ready")
    assert not states.ready


def test_a_load_swaps_the_state_with_a_new_generation(states: States, swaps: list[State]) -> None:
    assert states.reload().result(PATIENCE_S) is None
    assert states.reload().result(PATIENCE_S) is None
    assert [state.generation for state in swaps] == [1, 2]
    assert states.current is swaps[-1]
    assert states.status() | {"loaded_at": 0} == {
        "ready": True,
        "generation": 2,
        "loaded_at": 0,
        "fault": None,
        "models": 3,
    }


def test_a_configuration_with_faults_keeps_the_state_and_lists_them(
    states: States, source: Scripted, swaps: list[State]
) -> None:
    states.reload().result(PATIENCE_S)
    source.next = ConfigError([Fault(file="x.yaml", line=2, column=3, message="is wrong")])
    assert states.reload().result(PATIENCE_S) == "x.yaml:2:3: is wrong"
    assert states.status()["fault"] == "x.yaml:2:3: is wrong"
    assert (states.current.generation, len(swaps)) == (1, 1)


def test_a_good_load_takes_the_fault_back(states: States, source: Scripted) -> None:
    good, source.next = source.next, OSError("no")
    states.reload().result(PATIENCE_S)
    source.next = good
    states.reload().result(PATIENCE_S)
    assert (states.status()["fault"], states.ready) == (None, True)


def test_a_fault_of_the_loading_code_ends_neither_its_thread_nor_the_state(
    states: States, source: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    states.reload().result(PATIENCE_S)
    good, source.next = source.next, KeyError("defect")
    with caplog.at_level(logging.ERROR):
        assert states.reload().result(PATIENCE_S) == "KeyError('defect')"
    assert caplog.records[-1].exc_info is not None
    source.next = good
    assert states.reload().result(PATIENCE_S) is None
    assert states.current.generation == 2


def test_a_load_leaves_the_garbage_collector_on_and_out_of_what_it_read(
    states: States, source: Scripted
) -> None:
    n_before = gc.get_freeze_count()
    states.reload().result(PATIENCE_S)
    assert gc.get_freeze_count() > n_before
    gc.unfreeze()
    source.next = OSError("no")
    states.reload().result(PATIENCE_S)
    assert gc.isenabled()


def test_a_refresh_without_news_keeps_the_generation(
    states: States, source: Scripted, swaps: list[State]
) -> None:
    states.reload().result(PATIENCE_S)
    states.refresh().result(PATIENCE_S)
    assert source.calls == ["load", "refresh"]
    assert len(swaps) == 1


def test_a_refresh_with_news_swaps(states: States, source: Scripted, swaps: list[State]) -> None:
    states.reload().result(PATIENCE_S)
    source.refreshed = Loaded(decide=partial(advise))
    states.refresh().result(PATIENCE_S)
    assert [state.generation for state in swaps] == [1, 2]


def test_a_refresh_that_found_nothing_moved_is_published_and_keeps_the_answers(
    states: States, source: Scripted, swaps: list[State]
) -> None:
    states.reload().result(PATIENCE_S)
    source.refreshed = replace(states.current.loaded, documents={"cluster.json": "newer"})
    states.refresh().result(PATIENCE_S)
    assert [(s.generation, len(s.loaded.documents)) for s in swaps] == [(1, 0), (1, 1)]


def test_a_refresh_that_fails_keeps_the_state_and_is_logged_once(
    states: States, source: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    states.reload().result(PATIENCE_S)
    source.refreshed = SlurmError("scontrol must answer, did not")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            states.refresh().result(PATIENCE_S)
    assert [record.getMessage() for record in caplog.records] == [
        'state kept by=refresh generation=1 fault="scontrol must answer, did not"'
    ]


def test_a_refresh_before_any_state_loads_everything(states: States, source: Scripted) -> None:
    states.refresh().result(PATIENCE_S)
    assert source.calls == ["load"]
    assert states.ready


def test_closing_closes_the_source(states: States, source: Scripted) -> None:
    states.close()
    assert source.calls == ["close"]


def test_a_load_that_still_waits_when_the_daemon_stops_is_given_up(swaps: list[State]) -> None:
    may_end = threading.Event()

    class Slow(Scripted):
        def load(self) -> Loaded:
            may_end.wait(PATIENCE_S)
            return super().load()

    states = States(Slow(), swapped=swaps.append)
    first, second = states.reload(), states.reload()
    assert states.busy
    states.close()
    assert second.result(PATIENCE_S) == "the daemon is stopping"
    may_end.set()
    assert first.result(PATIENCE_S) is None
