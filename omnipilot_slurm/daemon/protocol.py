"""The messages of docs/protocol.md: lines of bytes in, records out, and back again.

Pure. The server decodes requests and encodes answers; clients (`omnipilot status`, tests, the
benchmarks) do the reverse. Scripts and other texts keep bytes that are not UTF-8 by way of
surrogateescape, so that offsets count the bytes that slurmctld holds.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

from omnipilot_slurm.errors import ProtocolError
from omnipilot_slurm.records import DECISION_ID, Edit, Outcome, Submission, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    GroupsOf = Callable[["str | int | None"], "frozenset[str] | None"]

VERSION = 1
MAX_REQUEST_BYTES = 256 * 1024
MAX_ANSWER_BYTES = 64 * 1024
MAX_MESSAGES = 5
MAX_MESSAGE_BYTES = 300
MAX_ERROR_CHARS = 8000

#: slurmctld's names where the record's field is called otherwise
_RENAMED = {
    "array": "array_inx",
    "time_limit_min": "time_limit",
    "min_mem_per_node_mib": "min_mem_per_node",
    "min_mem_per_cpu_mib": "min_mem_per_cpu",
}
#: `job` of a request: texts and whole numbers, wire name -> field of Submission
TEXT_FIELDS, WHOLE_FIELDS = (
    {
        _RENAMED.get(field.name, field.name): field.name
        for field in fields(Submission)
        if field.type == annotation
    }
    for annotation in ("str | None", "int | None")
)
#: what a rewrite may write, and the environment names it may overwrite
REWRITTEN_FIELDS = frozenset(
    {"partition", "gres", "tres_per_job", "tres_per_task", "tres_per_socket"}
)
_REWRITTEN_ENV = re.compile(r"SLURM_GPUS[A-Z_]*|SLURM_TRES_PER_TASK")
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Op(StrEnum):
    """What a client may ask for."""

    DECIDE = "decide"
    PING = "ping"
    STATUS = "status"
    RELOAD = "reload"


def decode_request(line: bytes, *, groups_of: GroupsOf = lambda _: None) -> Submission | Op:
    """Return the submission to decide on, or the operation asked for when it is another.

    `groups_of` tells the Unix groups of the user (a name, else a number), which no line does: to
    fill them in afterwards would cost half as much again as to read the line.

    Raises: ProtocolError with code `message`, `version`, `operation` or `too_long`.
    """
    if len(line) > MAX_REQUEST_BYTES:
        raise ProtocolError(
            f"request: must be at most {MAX_REQUEST_BYTES} bytes, was more", code="too_long"
        )
    if not line.endswith(b"\n"):
        raise ProtocolError(f"request: must end in a newline, ended after {len(line)} bytes")
    message = _object(line, "request")
    _check_version(message)
    op = message.get("op")
    if not isinstance(op, str) or op not in tuple(Op):
        raise ProtocolError(
            f"op: must be one of {', '.join(Op)}, was {op!r}",
            code="operation",
            hint="the client speaks of an operation that this daemon does not have",
        )
    return _submission(message, groups_of) if op == Op.DECIDE else Op(op)


def encode_request(request: Submission | Op) -> bytes:
    """Return the line that asks for this; the inverse of decode_request."""
    if isinstance(request, Op):
        return _line({"v": VERSION, "op": request})
    job: dict[str, object] = {
        wire: value
        for wire, name in (TEXT_FIELDS | WHOLE_FIELDS).items()
        if (value := getattr(request, name)) is not None
    }
    if request.held:
        job["priority"] = 0
    message: dict[str, object] = {
        "v": VERSION,
        "op": Op.DECIDE,
        "script": request.script.decode("utf-8", "surrogateescape"),
        "argv": list(request.args),
        "env": dict(request.environment),
        "job": job,
    }
    if request.partitions is not None:
        message["partitions"] = sorted(request.partitions)
    return _line(message)


def encode_decision(decision_id: str, outcome: Outcome) -> bytes:
    """Return the answer to a decide request.

    Raises: ValueError when the outcome holds what no shim may apply, a fault of the decider.
    """
    _check_rewrite(outcome)
    answer: dict[str, object] = {
        "v": VERSION,
        "id": decision_id,
        "verdict": outcome.verdict,
        "messages": _messages(outcome.messages, decision_id),
        "fields": dict(outcome.fields),
        "env": dict(outcome.env),
        "edits": [_edit(edit) for edit in outcome.edits],
    }
    if outcome.tag:
        answer["tag"] = tag_of(decision_id, outcome)
    if outcome.code is not None:
        answer["code"] = outcome.code
    line = _line(answer)
    if len(line) > MAX_ANSWER_BYTES:
        raise ValueError(f"answer: must be at most {MAX_ANSWER_BYTES} bytes, was {len(line)}")
    return line


def tag_of(decision_id: str, outcome: Outcome) -> str:
    """Return what AdminComment keeps of a decision."""
    return f"omnipilot={decision_id}:{outcome.verdict}"


def encode_ok() -> bytes:
    """Return the answer to ping, and to a reload that went well."""
    return _line({"v": VERSION, "ok": True})


def encode_status(status: Mapping[str, object]) -> bytes:
    """Return the answer to status."""
    return _line({"v": VERSION, "status": status})


def encode_error(code: str, text: str) -> bytes:
    """Return a refusal; the text is cut to what an answer can carry."""
    return _line({"v": VERSION, "error": {"code": code, "text": text[:MAX_ERROR_CHARS]}})


def decode_answer(line: bytes) -> dict[str, object]:
    """Return an answer as its JSON object.

    Raises: ProtocolError with the answer's own code when it is a refusal.
    """
    message = _object(line, "answer")
    _check_version(message)
    error = message.get("error")
    if isinstance(error, dict):
        raise ProtocolError(str(error.get("text", "")), code=str(error.get("code", "message")))
    return message


def _line(message: Mapping[str, object]) -> bytes:
    return _ENCODER.encode(message).encode("utf-8", "surrogateescape") + b"\n"


def _object(line: bytes, what: str) -> dict[str, object]:
    try:
        message = json.loads(
            line.decode("utf-8", "surrogateescape"), parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ProtocolError(f"{what}: is nested too deeply") from error
    except ValueError as error:
        raise ProtocolError(f"{what}: must be one JSON object in one line: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"{what}: must be a JSON object, was {_kind(message)}")
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_version(message: Mapping[str, object]) -> None:
    version = message.get("v")
    if type(version) is not int or version != VERSION:
        raise ProtocolError(
            f"v: must be {VERSION}, was {version!r}",
            code="version",
            hint="install the shim and the daemon of the same release",
        )


def _submission(message: Mapping[str, object], groups_of: GroupsOf) -> Submission:
    job = message.get("job", {})
    if not isinstance(job, dict):
        raise ProtocolError(f"job: must be an object, was {_kind(job)}")
    partitions = message.get("partitions")
    values: dict[str, object] = {}
    for wire, value in job.items():
        if wire in TEXT_FIELDS:
            values[TEXT_FIELDS[wire]] = _text(value, "job.", wire)
        elif wire in WHOLE_FIELDS:
            values[WHOLE_FIELDS[wire]] = _whole(value, wire)
    if "priority" in job:
        values["held"] = _whole(job["priority"], "priority") == 0
    user = values.get("user_name", values.get("user_id"))
    return Submission(
        script=_text(message.get("script"), "script").encode("utf-8", "surrogateescape"),
        args=tuple(_texts(message.get("argv", []), "argv")),
        environment=_text_map(message.get("env", {}), "env"),
        partitions=None if partitions is None else frozenset(_texts(partitions, "partitions")),
        groups=groups_of(user),  # type: ignore[arg-type]  # a text or whole number, as above
        **values,  # type: ignore[arg-type]  # each was checked against its table above
    )


def _text(value: object, where: str, name: str = "") -> str:
    if not isinstance(value, str):
        raise ProtocolError(f"{where}{name}: must be a string, was {_kind(value)}")
    if "\0" in value:
        raise ProtocolError(f"{where}{name}: must not hold a NUL character")
    if not value.isascii():
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ProtocolError(f"{where}{name}: must not hold half a surrogate pair") from error
    return value


def _texts(value: object, where: str) -> list[str]:
    if not isinstance(value, list):
        raise ProtocolError(f"{where}: must be an array, was {_kind(value)}")
    return [_text(item, where) for item in value]


def _text_map(value: object, where: str) -> dict[str, str]:
    # an empty table looks like an empty array to Lua
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{where}: must be an object, was {_kind(value)}")
    return {_text(name, where): _text(item, where, f".{name}") for name, item in value.items()}


def _whole(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise ProtocolError(f"job.{name}: must be a whole number >= 0, was {_kind(value)}")
    return value


def _kind(value: object) -> str:
    """Name a JSON value by kind: what a user's job holds is not repeated in errors and logs."""
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:24]}"
    if isinstance(value, list):
        return "an array"
    return "a string" if isinstance(value, str) else "an object"


def _messages(messages: Iterable[str], decision_id: str) -> list[str]:
    told = (text.replace(DECISION_ID, decision_id) for text in messages)
    return [_one_line(text) for text in told][:MAX_MESSAGES]


def _one_line(text: str) -> str:
    raw = _BREAKS.sub(" ", text).encode("utf-8", "replace")
    return raw[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore")


def _edit(edit: Edit) -> dict[str, object]:
    return {
        "start": edit.start,
        "end": edit.end,
        "old": edit.old.decode("utf-8", "surrogateescape"),
        "new": edit.new.decode("utf-8", "surrogateescape"),
    }


def _check_rewrite(outcome: Outcome) -> None:
    if outcome.verdict is not Verdict.REWRITE and (outcome.fields or outcome.env or outcome.edits):
        raise ValueError(f"answer: only a rewrite may change the job, not {outcome.verdict}")
    for name, value in outcome.fields.items():
        if name not in REWRITTEN_FIELDS or (name.startswith("tres_") and value):
            raise ValueError(f"answer: field {name!r} must not be set to {value!r}")
    for name in outcome.env:
        if not _REWRITTEN_ENV.fullmatch(name):
            raise ValueError(f"answer: variable {name!r} must not be overwritten")
    done = 0
    for edit in outcome.edits:
        if edit.start < done or edit.end - edit.start != len(edit.old):
            raise ValueError(f"answer: edits must ascend and not overlap: {edit!r}")
        done = edit.end
