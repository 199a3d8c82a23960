"""What each operation of the protocol does: one request line in, one answer line out.

In: the state in force, the caches, the recorder. Out: a Reply for the server to send, and what is
done once it has left. Called by the server's workers, several at a time.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.daemon import protocol
from omnipilot_slurm.daemon.cache import AnswerCache
from omnipilot_slurm.daemon.protocol import Op
from omnipilot_slurm.log import line as log_line
from omnipilot_slurm.records import Verdict
from omnipilot_slurm.store.decisions import Decided, Subject, Words, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnipilot_slurm.daemon.groups import Groups
    from omnipilot_slurm.daemon.metrics import Metrics
    from omnipilot_slurm.daemon.state import State, States
    from omnipilot_slurm.records import Outcome, Submission

_log = logging.getLogger(__name__)
#: 32 letters and digits that people do not mix up: 50 bits in ten of them
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 10
RELOAD_TIMEOUT_S = 30.0


class Keeper(Protocol):
    """Keeps decisions, or does not; `put` returns at once whatever the disk does."""

    @property
    def keeps(self) -> bool:
        """Whether what is handed over is kept."""

    def put(self, decided: Decided, /) -> None:
        """Hand a decision over."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was worked out once and may be answered again while the state and groups hold.

    `words` is what is stored of it, the id under which that was stored, or None before.
    """

    key: bytes
    subject: Subject
    outcome: Outcome
    generation: int
    user: str | int | None
    groups: frozenset[str] | None
    would_be: str | None = None
    words: Words | str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer line, and for a decide call the decision that it carries."""

    line: bytes
    decision: Decision | None = None
    decision_id: str = ""
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
        self._reloading = threading.Lock()
        self._cache: AnswerCache[bytes, Decision] = AnswerCache(n_cached_answers)

    def answer(self, line: bytes) -> Reply:
        """Return the reply to a request line.

        Raises: ProtocolError with the code of the refusal.
        """
        state = self._states.current
        # everything that a decision depends on is in the line, but for the state and the groups
        key = hashlib.sha256(line).digest()
        known = self._cache.get(key)
        if known is not None and self._still_holds(known, state.generation):
            return _reply(known, cached=True)
        request = protocol.decode_request(line, groups_of=self._groups.of)
        if isinstance(request, Op):
            return Reply(self._operate(request))
        decision = self._decide(key, request, state)
        if decision.outcome.lasting:
            self._cache.put(key, decision)
        return _reply(decision, cached=False)

    def settle(self, reply: Reply, elapsed_ms: float | None) -> None:
        """Store a decision whose answer has left, and make what the cache has of it small.

        `elapsed_ms` is None where the client had left first, so that nothing was decided for a job.
        """
        decision = reply.decision
        if decision is None:
            return
        if decision.words is None:
            decision = _in_words(decision, self._recorder.keeps)
        if elapsed_ms is not None:
            self._record(decision, reply, elapsed_ms)
            if isinstance(decision.words, Words):
                decision = replace(decision, words=reply.decision_id)
        if decision is not reply.decision and decision.outcome.lasting:
            self._cache.put(decision.key, decision)

    def _record(self, decision: Decision, reply: Reply, elapsed_ms: float) -> None:
        subject, outcome = decision.subject, decision.outcome
        self._metrics.observe(outcome.verdict, elapsed_ms, cached=reply.cached)
        self._recorder.put(
            Decided(
                id=reply.decision_id,
                at=time.time(),
                subject=subject,
                verdict=str(outcome.verdict),
                would_be=decision.would_be,
                code=outcome.code,
                generation=decision.generation,
                elapsed_ms=elapsed_ms,
                words=decision.words or "",
            )
        )
        # what passes in observe mode only is as worth a line as what is really done
        would_be = decision.would_be or outcome.verdict
        level = logging.DEBUG if would_be == Verdict.PASS else logging.INFO
        if _log.isEnabledFor(level):
            text = log_line(
                "decision",
                id=reply.decision_id,
                verdict=outcome.verdict,
                would_be=None if would_be == outcome.verdict else would_be,
                code=outcome.code,
                user=subject.user_name,
                partition=subject.partition,
                ms=elapsed_ms,
            )
            _log.log(level, text)

    def forget(self) -> None:
        """Drop the answers of a state that is no longer in force."""
        self._cache.clear()

    def _still_holds(self, known: Decision, generation: int) -> bool:
        return known.generation == generation and known.groups == self._groups.of(known.user)

    def _decide(self, key: bytes, submission: Submission, state: State) -> Decision:
        return Decision(
            key=key,
            subject=_subject(submission),
            outcome=state.loaded.decide(submission),
            generation=state.generation,
            user=submission.user_id if submission.user_name is None else submission.user_name,
            groups=submission.groups,
        )

    def _operate(self, op: Op) -> bytes:
        self._metrics.count(f"op_{op}")
        if op is Op.STATUS:
            return protocol.encode_status(self._status())
        return self._reload() if op is Op.RELOAD else protocol.encode_ok()

    def _reload(self) -> bytes:
        # one worker waits for a load, never all of them
        if not self._reloading.acquire(blocking=False):
            text = "another reload is under way; ask again when it has ended"
            return protocol.encode_error("busy", text)
        try:
            fault = self._states.reload().result(RELOAD_TIMEOUT_S)
        except TimeoutError:
            text = f"not loaded after {RELOAD_TIMEOUT_S:.0f} s; `status` says how it ends"
            return protocol.encode_error("busy", text)
        finally:
            self._reloading.release()
        return protocol.encode_ok() if fault is None else protocol.encode_error("reload", fault)


def _reply(decision: Decision, *, cached: bool) -> Reply:
    decision_id = _new_id()
    line = protocol.encode_decision(decision_id, decision.outcome)
    return Reply(line, decision, decision_id, cached)


def _in_words(decision: Decision, keeps: bool) -> Decision:
    """Return the decision without its record, which is large: as words to store, if any are."""
    words = words_of(decision.outcome)
    return replace(
        decision,
        outcome=replace(decision.outcome, record={}),
        words=words if keeps else "",
        would_be=words.would_be,
    )


def _new_id() -> str:
    bits = secrets.randbits(5 * _ID_LENGTH)
    return "".join(_ALPHABET[(bits >> 5 * place) & 31] for place in range(_ID_LENGTH))


def _subject(submission: Submission) -> Subject:
    return Subject(
        user_name=submission.user_name,
        account=submission.account,
        partition=submission.partition,
        job_name=submission.name,
        script_sha256=hashlib.sha256(submission.script).hexdigest(),
        script_bytes=len(submission.script),
    )
