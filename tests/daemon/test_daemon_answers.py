"""A real omnipilotd answers each line by itself, whatever came before it and beside it."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import pytest
from daemon_process import PATIENCE_S, read_all, wait_until

if TYPE_CHECKING:
    import socket

    from daemon_process import DaemonProcess

PING = b'{"v":1,"op":"ping"}\n'
PONG = b'{"v":1,"ok":true}\n'


def send_until_refused(connection: socket.socket, piece: bytes, pause_s: float) -> None:
    for _ in range(1000):
        connection.sendall(piece)
        time.sleep(pause_s)


def error_of(raw: bytes) -> tuple[str, str]:
    error = json.loads(raw)["error"]
    return error["code"], error["text"]


def test_ping_is_answered_and_the_connection_closed(daemon: DaemonProcess) -> None:
    assert daemon.ask_raw(PING) == PONG


def test_a_decision_has_its_id_in_message_and_tag(daemon: DaemonProcess) -> None:
    answer = daemon.decide("advise ask for two", user_name="root")
    assert answer == {
        "v": 1,
        "id": answer["id"],
        "verdict": "advise",
        "messages": [f"ask for two (omnipilot explain {answer['id']})"],
        "fields": {},
        "env": {},
        "edits": [],
        "tag": f"omnipilot={answer['id']}:advise",
        "code": "one",
    }


def test_a_line_that_comes_in_pieces_is_one_line(daemon: DaemonProcess) -> None:
    with daemon.connect() as connection:
        for byte in PING:
            connection.sendall(bytes([byte]))
            time.sleep(0.001)
        assert read_all(connection) == PONG


def test_what_follows_the_first_line_is_not_answered(daemon: DaemonProcess) -> None:
    assert daemon.ask_raw(PING + PING) == PONG


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        pytest.param(
            b"3\n", "message", "request: must be a JSON object, was the number 3", id="a number"
        ),
        pytest.param(
            b"\xff\xfe\0garbage\n",
            "message",
            "request: must be one JSON object in one line: "
            "Expecting value: line 1 column 1 (char 0)",
            id="garbage",
        ),
        pytest.param(
            PING[:-1],
            "message",
            "request: must end in a newline, ended after 19 bytes",
            id="half a line and no more",
        ),
        pytest.param(
            b"[" * 200_000 + b"\n", "message", "request: is nested too deeply", id="deep nesting"
        ),
        pytest.param(
            b'{"v":7,"op":"ping"}\n', "version", "v: must be 1, was 7", id="another version"
        ),
        pytest.param(
            b'{"v":1,"op":"stop"}\n',
            "operation",
            "op: must be one of decide, ping, status, reload, was 'stop'",
            id="an unknown operation",
        ),
        pytest.param(
            b'{"v":1,"op":"decide"}\n',
            "message",
            "script: must be a string, was missing or null",
            id="no script",
        ),
    ],
)
def test_is_refused_and_the_next_call_answered(
    raw: bytes, code: str, text: str, daemon: DaemonProcess
) -> None:
    assert error_of(daemon.ask_raw(raw)) == (code, text)
    assert daemon.ask_raw(PING) == PONG
    assert daemon.status()["counts"][f"refused_{code}"] == 1


@pytest.mark.parametrize("n_bytes", [300_000, 3_000_000])
def test_an_oversized_line_is_refused_to_whoever_sends_it_to_its_end(
    n_bytes: int, daemon: DaemonProcess
) -> None:
    raw = daemon.ask_raw(b'{"v":1,"op":"decide","script":"' + b"x" * n_bytes, b'"}\n')
    assert error_of(raw) == ("too_long", "request: must be at most 262144 bytes, was more")
    assert daemon.ask_raw(PING) == PONG


def test_a_line_without_end_is_given_up(daemon: DaemonProcess) -> None:
    with daemon.connect() as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        send_until_refused(connection, b"x" * 65536, 0.0)
    assert daemon.ask_raw(PING) == PONG


def test_the_largest_line_allowed_is_read(daemon: DaemonProcess) -> None:
    head, tail = b'{"v":1,"op":"decide","script":"', b'"}\n'
    raw = head + b"x" * (256 * 1024 - len(head) - len(tail)) + tail
    assert json.loads(daemon.ask_raw(raw))["verdict"] == "pass"


def test_a_fault_of_the_decider_is_answered_logged_and_survived(daemon: DaemonProcess) -> None:
    for script in ("raise because", "break the rules"):
        raw = json.dumps({"v": 1, "op": "decide", "script": script}).encode() + b"\n"
        assert error_of(daemon.ask_raw(raw)) == (
            "internal",
            "the daemon's log says what happened",
        )
    assert "ZeroDivisionError: because" in daemon.log_text()
    assert "only a rewrite may change the job, not advise" in daemon.log_text()
    assert daemon.ask_raw(PING) == PONG
    assert daemon.status()["counts"]["internal_errors"] == 2


def test_bytes_that_are_not_utf8_come_back_as_they_went(daemon: DaemonProcess) -> None:
    raw = daemon.ask_raw(b'{"v":1,"op":"decide","script":"advise caf\xe9"}\n')
    assert json.loads(raw)["messages"][0].startswith("caf? (")


def test_a_slow_client_is_dropped_without_an_answer(stopped: DaemonProcess) -> None:
    stopped.settings["call_timeout_s"] = 0.2
    stopped.start()
    with stopped.connect() as silent:
        assert read_all(silent) == b""
    with stopped.connect() as dripping, pytest.raises(OSError, match=r"Broken pipe|reset"):
        send_until_refused(dripping, b" ", 0.01)
    assert stopped.status()["counts"]["slow_clients"] == 2


def test_slow_clients_on_all_workers_but_one_hold_nobody_up(stopped: DaemonProcess) -> None:
    stopped.settings |= {"n_workers": 3, "call_timeout_s": 30}
    stopped.start()
    slow = [stopped.connect() for _ in range(2)]
    time.sleep(0.1)
    assert [stopped.ask_raw(PING) for _ in range(20)] == [PONG] * 20
    for connection in slow:
        connection.close()


def test_a_client_that_leaves_before_its_answer_costs_nothing(daemon: DaemonProcess) -> None:
    raw = json.dumps({"v": 1, "op": "decide", "script": "sleep 0.1"}).encode() + b"\n"
    with daemon.connect() as connection:
        connection.sendall(raw)
    wait_until(lambda: daemon.status()["counts"].get("lost_clients") == 1, "the lost client")
    assert daemon.ask_raw(PING) == PONG
    assert daemon.status()["latency_ms"]["count"] == 0


def test_a_client_that_says_nothing_is_no_fault(daemon: DaemonProcess) -> None:
    daemon.connect().close()
    assert daemon.ask_raw(PING) == PONG
    counts = daemon.status()["counts"]
    assert not {"lost_clients", "slow_clients", "refused_message"} & set(counts)


def test_many_clients_at_once_each_get_their_own_answer(daemon: DaemonProcess) -> None:
    answers: dict[str, str] = {}

    def work(first: int) -> None:
        for n in range(first, first + 25):
            answers[f"text {n}"] = daemon.decide(f"advise text {n}")["messages"][0]

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 200, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == 200
    assert all(answer.startswith(f"{text} (") for text, answer in answers.items())


def test_more_clients_than_may_wait_are_served_in_turn(stopped: DaemonProcess) -> None:
    stopped.settings["n_workers"] = 2
    stopped.start()
    connections = [stopped.connect() for _ in range(60)]
    for connection in connections:
        connection.sendall(PING)
    assert [read_all(connection) for connection in connections] == [PONG] * 60
    for connection in connections:
        connection.close()


def test_a_repeated_script_is_answered_without_deciding_again(daemon: DaemonProcess) -> None:
    first = daemon.decide("advise x", partition="gpu")
    wait_until(lambda: daemon.decide("advise x", partition="gpu")["id"], "an answer")
    before = daemon.n_decided()
    ids = {daemon.decide("advise x", partition="gpu")["id"] for _ in range(5)}
    assert daemon.n_decided() == before
    assert len({first["id"], *ids}) == 6
    assert daemon.status()["counts"]["cache_hits"] >= 5


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"script": "advise y\n"}, id="script"),
        pytest.param({"argv": ["-x"]}, id="argument"),
        pytest.param({"env": {"A": "1"}}, id="variable"),
        pytest.param({"partitions": ["gpu"]}, id="partitions"),
        pytest.param({"job": {"account": "nlp"}}, id="account"),
        pytest.param({"job": {"time_limit": 5}}, id="time limit"),
    ],
)
def test_another_value_is_another_decision(
    change: dict[str, object], daemon: DaemonProcess
) -> None:
    base = {"op": "decide", "script": "advise x\n", "argv": [], "env": {}, "job": {}}
    daemon.ask(**base)
    before = daemon.n_decided()
    daemon.ask(**(base | change))
    assert daemon.n_decided() == before + 1


def test_an_answer_that_does_not_last_is_not_given_again(daemon: DaemonProcess) -> None:
    before = daemon.n_decided()
    for _ in range(3):
        assert daemon.decide("pending")["verdict"] == "abstain"
    assert daemon.n_decided() == before + 3


def test_a_reload_forgets_the_answers(daemon: DaemonProcess) -> None:
    assert daemon.decide("advise x")["code"] == "one"
    daemon.state("two")
    assert daemon.ask(op="reload") == {"v": 1, "ok": True}
    assert daemon.decide("advise x")["code"] == "two"


def test_without_a_cache_every_script_is_decided_anew(stopped: DaemonProcess) -> None:
    stopped.settings["n_cached_answers"] = 0
    stopped.start()
    before = stopped.n_decided()
    for _ in range(3):
        stopped.decide("advise x")
    assert stopped.n_decided() == before + 3


def test_a_users_groups_are_unknown_at_first_and_known_soon(daemon: DaemonProcess) -> None:
    daemon.decide("advise x", user_name="root", user_id=0)
    decided_twice = daemon.n_decided() + 1
    wait_until(
        lambda: (
            daemon.decide("advise x", user_name="root", user_id=0)
            and daemon.n_decided() == decided_twice
        ),
        "a decision with the groups",
    )
    for _ in range(3):
        daemon.decide("advise x", user_name="root", user_id=0)
    assert daemon.n_decided() == decided_twice


def test_status_tells_what_is_in_force(daemon: DaemonProcess) -> None:
    daemon.decide("advise x")
    # a decision is counted once its answer has left
    wait_until(lambda: daemon.status()["latency_ms"]["count"], "the count")
    status = daemon.status()
    assert status["pid"] == daemon.process.pid
    assert status["socket"] == str(daemon.socket)
    assert status["state"] | {"loaded_at": 0} == {
        "ready": True,
        "generation": 1,
        "loaded_at": 0,
        "fault": None,
        "state": "one",
    }
    assert status["store"]["path"] == str(daemon.store)
    assert status["published"] == {"folder": str(daemon.public), "fault": None}
    assert status["counts"]["verdict_advise"] == 1
    assert status["latency_ms"]["count"] == 1
