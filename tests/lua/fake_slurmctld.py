"""A slurmctld of paper: runs lua/omnipilot.lua with a job, a daemon and a clock that tests control.

One object with state, as the real one: the Lua state outlives submissions. Texts are bytes held
as latin-1, so that every byte can stand in a job. Semantics are those seen on Slurm 22.05: a job is
an empty table with a metatable; writing nil to a text throws, "" clears it; an unknown field is
ignored with an error line; a variable is read by its name only. Numbers are floats, as slurmctld
pushes them.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path

LUA_FOLDER = Path(__file__).parents[2] / "lua"
LUA_VERSIONS = ("lua51", "lua52", "lua53", "lua54")

TEXT_FIELDS = frozenset(
    "account admin_comment array_inx comment cpus_per_tres default_account default_qos exc_nodes"
    " features mem_per_tres name partition qos req_nodes reservation script tres_per_job"
    " tres_per_node tres_per_socket tres_per_task user_name".split()
)
NUMBER_FIELDS = {
    **dict.fromkeys(
        "ntasks_per_node ntasks_per_gpu cpus_per_task pn_min_cpus shared".split(), 65534
    ),
    **dict.fromkeys(
        "time_limit min_nodes max_nodes num_tasks min_cpus priority het_job_offset".split(),
        4294967294,
    ),
    "user_id": 1000,
    "group_id": 1000,
    "ntasks_per_tres": 65534,
}

_PROXY = """
return function(get, set)
  return setmetatable({}, {
    __index = function(_, key) return get(key) end,
    __newindex = function(_, key, value) set(key, value) end,
  })
end
"""
_FORMATTED = "return function(sink) return function(...) sink(string.format(...)) end end"
_LIBRARIES = """
return function(new, now)
  package.preload["posix.time"] = function() error("absent from this test") end
  package.preload["posix.sys.socket"] = package.preload["posix.time"]
  package.preload["socket"] = function() return { gettime = now } end
  package.preload["socket.unix"] = function() return { stream = new } end
end
"""


class FaultError(Exception):
    """What a test makes slurmctld throw at the plugin."""


@dataclass
class FakeJob:
    """One job_desc: `fields` and `environment` are its state."""

    slurmctld: FakeSlurmctld
    fields: dict[str, object]
    environment: dict[str, str]
    argv: list[str]

    def proxy(self) -> object:
        make = self.slurmctld.proxy
        environment = make(self._get_variable, self._set_variable)
        return make(lambda name: self._get(name, environment), self._set)

    def state(self) -> tuple[dict[str, object], dict[str, str]]:
        return dict(self.fields), dict(self.environment)

    def _get(self, name: str, environment: object) -> object:
        self.slurmctld.touch(f"read {name}")
        if name == "environment":
            return environment
        if name == "argc":
            return float(len(self.argv))
        if name == "argv":
            return self.slurmctld.lua.table_from(dict(enumerate(self.argv)))
        if name == "gres":
            name = "tres_per_node"
        value = self.fields.get(name, NUMBER_FIELDS.get(name))
        return float(value) if isinstance(value, int) else value

    def _set(self, name: str, value: object) -> None:
        self.slurmctld.touch(f"write {name}")
        if name not in TEXT_FIELDS | {"gres"} or name in self.slurmctld.ignored_fields:
            self.slurmctld.log.append(("error", f"_set_job_field: unrecognized field: {name}"))
            return
        if not isinstance(value, str):
            raise TypeError(f"bad argument #3 to '?' (string expected, got {value!r})")
        if name == "gres":
            name, value = "tres_per_node", value and f"gres:{value}"
        if value:
            self.fields[name] = value
        else:
            self.fields.pop(name, None)

    def _get_variable(self, name: str) -> str | None:
        self.slurmctld.touch(f"read environment {name}")
        return self.environment.get(name)

    def _set_variable(self, name: str, value: object) -> None:
        self.slurmctld.touch(f"write environment {name}")
        if not isinstance(value, str):
            raise TypeError(f"bad argument #3 to '?' (string expected, got {value!r})")
        self.environment[name] = value


@dataclass
class FakeDaemon:
    """What stands behind the socket. `answer` maps a request to the bytes that come back.

    It may return None: silence. `busy` is a full queue, `slow_s` the time before an answer.
    """

    slurmctld: FakeSlurmctld
    answer: object = None
    is_listening: bool = True
    is_busy: bool = False
    ping_answer: bytes | None = b'{"v":1,"ok":true}\n'
    slow_s: float = 0.0
    chunk_bytes: int = 1 << 20
    requests: list[dict] = field(default_factory=list)
    n_connections: int = 0

    @property
    def asked(self) -> list[dict]:
        return [request for request in self.requests if request["op"] == "decide"]

    @property
    def n_pings(self) -> int:
        return len(self.requests) - len(self.asked)

    def reply_to(self, line: bytes) -> bytes | None:
        assert line.endswith(b"\n")
        assert b"\n" not in line[:-1]
        request = json.loads(line.decode("utf-8", "surrogateescape"))
        self.requests.append(request)
        if request["op"] == "ping":
            return self.ping_answer
        reply = self.answer(request) if callable(self.answer) else self.answer
        return json.dumps(reply).encode() + b"\n" if isinstance(reply, dict) else reply


@dataclass
class FakeSocket:
    """luasocket's stream socket, as far as the module uses it; waiting moves the clock."""

    daemon: FakeDaemon
    wait_s: float = 0.0
    waiting: bytes | None = None
    is_open: bool = True

    def settimeout(self, seconds: float, _mode: str) -> None:
        self.wait_s = seconds

    def connect(self, _path: str) -> object:
        self.daemon.n_connections += 1
        if self.daemon.is_busy:
            self.daemon.slurmctld.now_s += self.wait_s
            return None, "timeout"
        return (1, None) if self.daemon.is_listening else (None, "connection refused")

    def send(self, text: str) -> object:
        reply = self.daemon.reply_to(text.encode("latin-1"))
        if self.daemon.slow_s:
            self.daemon.slurmctld.now_s += min(self.daemon.slow_s, self.wait_s)
            reply = None if self.daemon.slow_s >= self.wait_s else reply
        self.waiting = reply
        return len(text), None

    def receive(self, n_bytes: int) -> object:
        if self.waiting is None:
            self.daemon.slurmctld.now_s += self.wait_s
            return None, "timeout", ""
        if not self.waiting:
            return None, "closed", ""
        n_bytes = min(int(n_bytes), self.daemon.chunk_bytes)
        got, self.waiting = self.waiting[:n_bytes].decode("latin-1"), self.waiting[n_bytes:]
        return (got, None, None) if len(got) == n_bytes else (None, "closed", got)

    def close(self) -> None:
        self.is_open = False


@dataclass(frozen=True)
class Outcome:
    """What became of one submission."""

    code: int
    job: FakeJob
    before: tuple[dict[str, object], dict[str, str]]
    told: list[str]

    @property
    def is_untouched(self) -> bool:
        return self.job.state() == self.before


class FakeSlurmctld:
    """One slurmctld with lua/omnipilot.lua loaded."""

    def __init__(self, version: str = "lua51", *, slurm: dict[str, object] | None = None) -> None:
        runtime = importlib.import_module(f"lupa.{version}").LuaRuntime
        self.lua = runtime(encoding="latin-1", unpack_returned_tuples=True)
        self.proxy = self.lua.execute(_PROXY)
        self.log: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.now_s = 1000.0
        self.ignored_fields: frozenset[str] = frozenset()
        self.daemon = FakeDaemon(self)
        self.sockets: list[FakeSocket] = []
        self.touches: list[str] = []
        self.fault_at: int | None = None
        self.partitions = {"a100": 1, "h100": 0}
        self._set_slurm({"SUCCESS": 0, "ERROR": -1} if slurm is None else slurm)
        self.lua.execute(_LIBRARIES)(self._new_socket, lambda: self.now_s)
        self.module = self.lua.execute((LUA_FOLDER / "omnipilot.lua").read_text("latin-1"))
        self.submit_function = None

    def _set_slurm(self, constants: dict[str, object]) -> None:
        formatted = self.lua.execute(_FORMATTED)
        table = self.lua.table_from(constants)
        for level in ("error", "info", "debug"):
            table[f"log_{level}"] = formatted(
                lambda text, level=level: self._write_log(level, text)
            )
        table["log_user"] = formatted(self._tell)
        self.lua.globals()["slurm"] = table

    def _new_socket(self) -> object:
        self.sockets.append(FakeSocket(self.daemon))
        return self.sockets[-1]

    def _write_log(self, level: str, text: str) -> None:
        self.touch(f"log {level}")
        self.log.append((level, text))

    def _tell(self, text: str) -> None:
        self.touch("log user")
        self.told.append(text)

    def touch(self, what: str) -> None:
        """Note that the plugin reached for something; throw if a test asked for it here."""
        self.touches.append(what)
        if len(self.touches) == self.fault_at:
            raise FaultError(what)

    def setup(self, **settings: object) -> None:
        """Call setup() as job_submit.lua does; lists and dicts become tables."""
        given = {
            name: self.lua.table_from(value) if isinstance(value, list | dict) else value
            for name, value in {"exempt_root": False, **settings}.items()
        }
        self.submit_function = self.module.setup(self.lua.table_from(given))

    def submit(
        self, script: str | None, *, uid: int = 1000, env=None, argv=(), **fields
    ) -> Outcome:
        """Submit one job and return what became of it."""
        if self.submit_function is None:
            self.setup()
        fields = {"user_id": uid, "user_name": f"user{uid}", **fields}
        if script is not None:
            fields["script"] = script
        job = FakeJob(self, fields, dict(env or {}), ["job.sh", *argv])
        before = job.state()
        part_list = {
            name: self.lua.table_from({"name": name, "flag_default": default})
            for name, default in self.partitions.items()
        }
        self.touches, self.told = [], []
        code = self.submit_function(job.proxy(), self.lua.table_from(part_list), float(uid))
        assert not any(sock.is_open for sock in self.sockets)
        return Outcome(code, job, before, self.told)

    def lines(self, *levels: str) -> list[str]:
        """Return what was logged at these levels (default: error and info)."""
        wanted = levels or ("error", "info")
        return [text for level, text in self.log if level in wanted]
