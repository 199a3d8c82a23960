"""The shim on real Unix sockets, with luasocket and with lua-posix as Debian ships them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_slurmctld import LUA_FOLDER

DRIVER = Path(__file__).parent / "drive_shim.lua"
ADVICE = b'{"v":1,"id":"k3f9","verdict":"advise","messages":["100 % na\xc3\xafve"]}\n'
REWRITE = (
    b'{"v":1,"id":"k3f9","verdict":"rewrite","messages":[],'
    b'"edits":[{"start":2,"end":9,"old":"/bin/sh","new":"/bin/bash"}]}\n'
)
UNCHANGED = "code 0 unchanged"
PATIENT_MS, SHORT_MS = 3000, 100  # where an answer is awaited, and where there is none
LONG_IN_JSON = "\1"  # six bytes each: 40,000 of them do not fit into a socket's buffer

pytestmark = pytest.mark.parametrize("library", ["luasocket", "lua-posix"])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "d.sock")


def drive(
    library, path, *, n=1, script_bytes=1000, filler="x", deadline_ms=PATIENT_MS
) -> list[str]:
    """Submit n times and return the events; the interpreter must end by itself, and in time."""
    interpreter = shutil.which("lua5.1")
    assert interpreter, "install lua5.1, lua-socket and lua-posix"
    module = LUA_FOLDER / "omnipilot.lua"
    argv = [interpreter, DRIVER, module, library, path, deadline_ms, n, script_bytes, ord(filler)]
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        timeout=20,
        check=True,
        restore_signals=False,  # slurmctld, too, is not killed by SIGPIPE
    )
    assert done.stderr == b""
    return done.stdout.decode().splitlines()


@contextmanager
def server(path, serve, backlog=16):
    """A server in a thread that hands every connection to serve(), until the block ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(backlog)
    is_over = threading.Event()

    def loop():
        while not is_over.is_set():
            conn, _ = listener.accept()
            with conn:
                if not is_over.is_set():
                    serve(conn)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(path)
        thread.join()
        listener.close()


def read_line(conn) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = conn.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


def replying(answer: bytes, *, keep_open=False, pause_s=0.0, chunk=1 << 20):
    def serve(conn):
        request = json.loads(read_line(conn))
        reply = b'{"v":1,"ok":true}\n' if request["op"] == "ping" else answer
        time.sleep(pause_s)
        try:
            for start in range(0, len(reply), chunk):
                conn.sendall(reply[start : start + chunk])
            if keep_open:
                conn.recv(1)
        except OSError:
            pass  # the shim has hung up, as it should

    return serve


def test_an_answer_is_read_and_told(library, path):
    with server(path, replying(ADVICE)):
        assert drive(library, path) == ["told 100 % naïve", UNCHANGED]


def test_a_rewrite_arrives(library, path):
    with server(path, replying(REWRITE)):
        assert drive(library, path) == ["log omnipilot: k3f9:rewrite", "code 0 rewritten"]


def test_an_answer_in_single_bytes_is_put_together(library, path):
    with server(path, replying(ADVICE, chunk=1)):
        assert drive(library, path) == ["told 100 % naïve", UNCHANGED]


def test_the_shim_does_not_wait_for_the_server_to_close(library, path):
    with server(path, replying(ADVICE, keep_open=True)):
        assert drive(library, path, n=3) == ["told 100 % naïve", UNCHANGED] * 3


def test_a_request_larger_than_the_sockets_buffer_arrives_whole(library, path):
    sizes = []

    def serve(conn):
        time.sleep(0.02)
        sizes.append(len(json.loads(read_line(conn))["script"]))
        conn.sendall(ADVICE)

    with server(path, serve):
        lines = drive(library, path, script_bytes=40_000, filler=LONG_IN_JSON)
    assert lines == ["told 100 % naïve", UNCHANGED]
    assert sizes == [40_000]


def test_nobody_listening_is_told_three_times_and_then_not_tried(library, path):
    lines = drive(library, path, n=5)
    assert lines.count(UNCHANGED) == 5
    assert sum(line.startswith("log omnipilot: nobody listens at ") for line in lines) == 3
    assert len(lines) == 9


@pytest.mark.parametrize("kind", ["stale", "file", "folder", "closed", "long"])
def test_a_path_without_a_listener_counts_as_nobody_listening(library, path, kind):
    if kind == "stale":
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
    elif kind == "file":
        Path(path).touch()
    elif kind == "folder":
        Path(path).mkdir()
    elif kind == "closed":
        path = "/proc/1/root/nowhere/d.sock"
    else:
        path = "/" + "x" * 200
    lines = drive(library, path)
    assert lines[0].startswith("log omnipilot: nobody listens at ")
    assert lines[1:] == [UNCHANGED]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed"),
        (ADVICE[:40], "closed"),
        (ADVICE[:-1], "closed"),
        (b"\x00\xff\n", "not JSON"),
        (ADVICE + b"x", "more than one line"),
        (b"x" * 3_000_000, "answer too long"),
    ],
)
def test_a_bad_answer_leaves_the_job_unchanged(library, path, answer, why):
    with server(path, replying(answer)):
        lines = drive(library, path)
    assert lines == [f"log omnipilot: no good answer for uid 1000: {why}", UNCHANGED]


def test_a_server_that_hangs_up_at_once_leaves_the_job_unchanged(library, path):
    with server(path, lambda conn: conn.close()):
        lines = drive(library, path, n=2, script_bytes=65536)
    assert lines[1::2] == [UNCHANGED] * 2
    assert all("no good answer for uid 1000: " in line for line in lines[::2])


def test_an_answer_after_the_deadline_leaves_the_job_unchanged(library, path):
    with server(path, replying(ADVICE, pause_s=0.4)):
        lines = drive(library, path, deadline_ms=SHORT_MS)
    assert lines == ["log omnipilot: no good answer for uid 1000: timeout", UNCHANGED]


def test_half_a_line_and_then_silence_costs_one_deadline(library, path):
    with server(path, replying(ADVICE[:40], keep_open=True)):
        lines = drive(library, path, deadline_ms=SHORT_MS)
    assert lines == ["log omnipilot: no good answer for uid 1000: timeout", UNCHANGED]


@pytest.mark.parametrize("filler", ["x", LONG_IN_JSON])
def test_a_server_that_never_reads_does_not_hold_the_shim(library, path, filler):
    is_over = threading.Event()
    with server(path, lambda _: is_over.wait(20)):
        try:
            lines = drive(
                library, path, n=6, script_bytes=40_000, filler=filler, deadline_ms=SHORT_MS
            )
        finally:
            is_over.set()
    assert lines == [
        *["log omnipilot: no good answer for uid 1000: timeout", UNCHANGED] * 3,
        "log omnipilot: no answer (a ping failed); jobs pass unasked for 1 s",
        *[UNCHANGED] * 3,
    ]


def test_a_server_that_never_accepts_does_not_hold_the_shim(library, path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        lines = drive(library, path, n=10, deadline_ms=SHORT_MS)
    assert lines.count(UNCHANGED) == 10
    assert sum("no good answer" in line for line in lines) == 3
    assert "log omnipilot: no answer (a ping failed); jobs pass unasked for 1 s" in lines


def test_an_endless_dribble_costs_one_deadline(library, path):
    def serve(conn):
        read_line(conn)
        try:
            while True:
                conn.sendall(b" ")
                time.sleep(0.001)
        except OSError:
            pass

    with server(path, serve):
        lines = drive(library, path, deadline_ms=SHORT_MS)
    assert lines == ["log omnipilot: no good answer for uid 1000: timeout", UNCHANGED]
