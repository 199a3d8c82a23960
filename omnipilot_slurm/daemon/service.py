"""What each operation of the protocol does: one request line in, one answer line out.

In: the state in force, the caches, the recorder. Out: a Reply for the server to send, and what is
done once it has left. Called by the server's workers, several at a time.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.daemon import protocol
from omnipilot_slurm.daemon.cache import AnswerCache
from omnipilot_slurm.daemon.protocol import Op
from omnipilot_slurm.store.decisions import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnipilot_slurm.daemon.groups import Groups
    from omnipilot_slurm.daemon.metrics import Metrics
    from omnipilot_slurm.daemon.state import States
    from omnipilot_slurm.records import Outcome, Submission

#: 32 letters and digits that people do not mix up: 50 bits in ten of them
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 10
RELOAD_TIMEOUT_S = 30.0


class Keeper(Protocol):
    """Keeps decisions; `put` returns at once whatever the disk does."""

    def put(self, decided: Decided, /) -> None:
        """Hand a decision over."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A decision as it can be given again: to whom, what, and what it was about."""

    key: bytes
    submission: Submission
    outcome: Outcome
    generation: int
    script_sha256: str | None = None
    script_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer line, and for a decide call what is noted of it when it has left."""

    line: bytes
    decision_id: str | None = None
    answered: Answered | None = None
    cached: bool = False


class Service:
    """Answers request lines; one instance serves all workers."""

    def __init__(
        self,
        *,
        states: States,
        groups: Groups,
        metrics: Metrics,
        recorder: Keeper,
        status: Callable[[], Mapping[str, object]],
        n_cached_answers: int,
    ) -> None:
        self._states = states
        self._groups = groups
        self._metrics = metrics
        self._recorder = recorder
        self._status = status
        self._cache: AnswerCache[bytes, Answered] = AnswerCache(n_cached_answers)

    def answer(self, line: bytes) -> Reply:
        """Return the reply to a request line.

        Raises: ProtocolError with the code of the refusal.
        """
        state = self._states.current
        key = hashlib.sha256(line).digest()
        known = self._cache.get(key)
        if known is not None and self._still_holds(known, state.generation):
            return self._reply(known, cached=True)
        request = protocol.decode_request(line)
        if isinstance(request, Op):
            return Reply(self._operate(request))
        submission = replace(request, groups=self._groups.of(_user(request)))
        outcome = state.loaded.decide(submission)
        return self._reply(Answered(key, submission, outcome, state.generation), cached=False)

    def sent(self, reply: Reply, elapsed_ms: float) -> None:
        """Note a decide call whose answer has left: its count, its time, its row, its reuse."""
        if reply.answered is None or reply.decision_id is None:
            return
        answered = reply.answered
        if not reply.cached:
            answered = _without_script(answered)
            self._cache.put(answered.key, answered)
        self._metrics.observe(answered.outcome.verdict, elapsed_ms, cached=reply.cached)
        self._recorder.put(_decided(reply, answered, elapsed_ms))

    def forget(self) -> None:
        """Drop the answers of a state that is no longer in force."""
        self._cache.clear()

    def _still_holds(self, known: Answered, generation: int) -> bool:
        """Tell whether what is not in the line, its own key, is as it was: state and groups."""
        if known.generation != generation:
            return False
        return known.submission.groups == self._groups.of(_user(known.submission))

    def _reply(self, answered: Answered, *, cached: bool) -> Reply:
        decision_id = _new_id()
        line = protocol.encode_decision(decision_id, answered.outcome)
        return Reply(line, decision_id, answered, cached)

    def _operate(self, op: Op) -> bytes:
        self._metrics.count(f"op_{op}")
        if op is Op.STATUS:
            return protocol.encode_status(self._status())
        return self._reload() if op is Op.RELOAD else protocol.encode_ok()

    def _reload(self) -> bytes:
        if self._states.busy:
            return protocol.encode_error("busy", "a load is under way; ask again when it has ended")
        try:
            fault = self._states.reload().result(RELOAD_TIMEOUT_S)
        except TimeoutError:
            text = f"not loaded after {RELOAD_TIMEOUT_S:.0f} s; `status` says how it ends"
            return protocol.encode_error("busy", text)
        return protocol.encode_ok() if fault is None else protocol.encode_error("reload", fault)


def _new_id() -> str:
    bits = secrets.randbits(5 * _ID_LENGTH)
    return "".join(_ALPHABET[(bits >> 5 * place) & 31] for place in range(_ID_LENGTH))


def _user(submission: Submission) -> str | int | None:
    return submission.user_id if submission.user_name is None else submission.user_name


def _without_script(answered: Answered) -> Answered:
    """Keep the hash and size in the script's place: a cache of scripts would hold megabytes."""
    script = answered.submission.script
    return replace(
        answered,
        submission=replace(answered.submission, script=b""),
        script_sha256=hashlib.sha256(script).hexdigest(),
        script_bytes=len(script),
    )


def _decided(reply: Reply, answered: Answered, elapsed_ms: float) -> Decided:
    submission, outcome = answered.submission, answered.outcome
    return Decided(
        id=reply.decision_id or "",
        at=time.time(),
        outcome=outcome,
        user_name=submission.user_name,
        account=submission.account,
        partition=submission.partition,
        job_name=submission.name,
        script_sha256=answered.script_sha256 or "",
        script_bytes=answered.script_bytes,
        generation=answered.generation,
        cached=reply.cached,
        elapsed_ms=elapsed_ms,
    )
