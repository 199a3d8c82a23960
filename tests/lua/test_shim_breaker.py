"""When the shim stops asking, and when it asks again."""

from __future__ import annotations

import pytest

SERVE = "#!/bin/bash\nvllm serve m\n"
PASS = {"v": 1, "id": "k3f9", "verdict": "pass", "messages": []}
SILENCE, DEADLINE_S, PING_S = None, 0.050, 0.020


@pytest.fixture
def ctld(slurmctld):
    slurmctld.daemon.answer = PASS
    slurmctld.setup()
    return slurmctld


def submit(ctld, uid=1000, n=1):
    """Submit n jobs of a user and return for how long, in s, slurmctld was held up."""
    began = ctld.now_s
    for _ in range(n):
        outcome = ctld.submit(SERVE, uid=uid)
        assert outcome.code == 0
        assert outcome.is_untouched
    return ctld.now_s - began


def is_asked(ctld, uid=1000) -> bool:
    n_asked = len(ctld.daemon.asked)
    submit(ctld, uid)
    return len(ctld.daemon.asked) > n_asked


def test_three_refused_connections_open_it_and_then_nothing_is_tried(ctld):
    ctld.daemon.is_listening = False
    submit(ctld, n=10)
    assert ctld.daemon.n_connections == 3
    nobody = "omnipilot: nobody listens at /run/omnipilot/omnipilotd.sock: connection refused"
    assert ctld.lines() == [
        *[nobody] * 3,
        "omnipilot: no answer (connection refused); jobs pass unasked for 1 s",
    ]


def test_the_backoff_doubles_from_1_s_to_60_s_with_one_ping_each(ctld):
    ctld.daemon.is_listening = False
    submit(ctld, n=3)
    for backoff_s in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        n_tried = ctld.daemon.n_connections
        ctld.now_s += backoff_s - 0.01
        submit(ctld)
        assert ctld.daemon.n_connections == n_tried
        ctld.now_s += 0.02
        submit(ctld)
        assert ctld.daemon.n_connections == n_tried + 1
    assert len(ctld.lines()) == 4


def test_a_ping_that_is_answered_closes_it_and_the_job_is_asked_about_at_once(ctld):
    ctld.daemon.is_listening = False
    submit(ctld, n=3)
    ctld.daemon.is_listening = True
    ctld.now_s += 1.1
    assert is_asked(ctld)
    assert ctld.daemon.n_pings == 1
    assert ctld.lines()[-1] == "omnipilot: answered again; asking about jobs"
    assert is_asked(ctld)
    assert ctld.daemon.n_pings == 1


def test_two_refused_connections_do_not_open_it(ctld):
    for _ in range(5):
        ctld.daemon.is_listening = False
        submit(ctld, n=2)
        ctld.daemon.is_listening = True
        assert is_asked(ctld)


def test_a_request_that_gets_no_answer_costs_the_deadline_and_no_more(ctld):
    ctld.daemon.answer = SILENCE
    assert submit(ctld) == pytest.approx(DEADLINE_S)


def test_one_users_unanswered_scripts_never_open_it(ctld):
    ctld.daemon.answer = lambda request: SILENCE if request["job"]["user_id"] == 7 else PASS
    for _ in range(50):
        submit(ctld, uid=7)
        assert is_asked(ctld, uid=1000)
        ctld.now_s += 0.3
    assert not any("jobs pass unasked" in line for line in ctld.lines("error", "info", "debug"))


def test_a_user_with_three_unanswered_scripts_is_skipped_for_a_growing_while(ctld):
    ctld.daemon.answer = lambda request: SILENCE if request["job"]["user_id"] == 7 else PASS
    assert submit(ctld, uid=7, n=3) == pytest.approx(3 * DEADLINE_S)
    for backoff_s in (1, 2, 4):
        assert submit(ctld, uid=7, n=20) == 0
        ctld.now_s += backoff_s + 0.01
        assert is_asked(ctld, uid=7)


def test_a_user_whose_script_is_answered_again_starts_afresh(ctld):
    ctld.daemon.answer = SILENCE
    submit(ctld, uid=7, n=2)
    ctld.daemon.answer = PASS
    submit(ctld, uid=7)
    ctld.daemon.answer = SILENCE
    assert [is_asked(ctld, uid=7) for _ in range(4)] == [True, True, True, False]


def test_users_who_share_a_slot_of_the_table_do_not_share_its_strikes(ctld):
    ctld.daemon.answer = lambda request: SILENCE if request["job"]["user_id"] == 7 else PASS
    submit(ctld, uid=7, n=3)
    assert is_asked(ctld, uid=7 + 1024)


def test_after_three_unanswered_scripts_a_ping_tells_a_hung_daemon_from_a_slow_script(ctld):
    ctld.daemon.answer = ctld.daemon.ping_answer = SILENCE
    held_s = submit(ctld, n=30)
    assert held_s == pytest.approx(3 * DEADLINE_S + PING_S)
    assert ctld.daemon.n_pings == 1
    assert ctld.lines()[-1] == "omnipilot: no answer (a ping failed); jobs pass unasked for 1 s"


def test_a_daemon_that_hung_and_recovers_holds_no_grudge_against_users(ctld):
    ctld.daemon.ping_answer, good_ping = SILENCE, ctld.daemon.ping_answer
    ctld.daemon.answer = SILENCE
    submit(ctld, uid=7, n=4)
    ctld.daemon.answer, ctld.daemon.ping_answer = PASS, good_ping
    ctld.now_s += 1.1
    assert is_asked(ctld, uid=7)


def test_a_daemon_that_answers_pings_and_no_user_is_left_for_a_growing_while(ctld):
    ctld.daemon.answer = SILENCE
    held_s = sum(submit(ctld, uid=uid) for uid in range(100, 103))
    assert held_s == pytest.approx(3 * DEADLINE_S)
    assert sum(submit(ctld, uid=uid) for uid in range(200, 300)) == 0
    ctld.now_s += 1.1
    held_s = sum(submit(ctld, uid=uid) for uid in range(300, 400))
    assert held_s == pytest.approx(3 * DEADLINE_S)
    assert "jobs pass unasked for 2 s" in ctld.lines()[-1]


def test_a_queue_that_is_full_counts_like_silence(ctld):
    ctld.daemon.is_busy = True
    assert submit(ctld, n=20) == pytest.approx(3 * DEADLINE_S + PING_S)


@pytest.mark.parametrize("garbage", [b"", b"{", b"half", b"[1]\n", b'{"v":1}\n'])
def test_garbage_counts_like_silence(ctld, garbage):
    ctld.daemon.answer = ctld.daemon.ping_answer = garbage.replace(b'{"v":1}', b'{"v":9}')
    submit(ctld, n=4)
    assert ctld.daemon.n_pings == 1
    assert ctld.lines()[-1] == "omnipilot: no answer (a ping failed); jobs pass unasked for 1 s"


def test_errors_that_the_daemon_answers_never_count(ctld):
    ctld.daemon.answer = {"v": 1, "error": {"code": "internal", "text": "x"}}
    assert all(is_asked(ctld, uid=uid) for uid in range(30))
    assert ctld.daemon.n_pings == 0


def test_an_answer_after_the_deadline_is_not_taken(ctld):
    ctld.daemon.answer = PASS | {"verdict": "reject", "messages": ["no"]}
    ctld.daemon.slow_s = 0.2
    assert submit(ctld) == pytest.approx(DEADLINE_S)


def test_the_ping_and_the_question_share_one_deadline(ctld):
    ctld.daemon.answer = SILENCE
    submit(ctld, uid=7, n=3)
    ctld.daemon.slow_s = 0.015
    assert submit(ctld, uid=8) <= DEADLINE_S + 1e-9


def test_it_survives_between_calls_and_not_a_new_setup(ctld):
    ctld.daemon.is_listening = False
    submit(ctld, n=3)
    ctld.setup()
    submit(ctld)
    assert ctld.daemon.n_connections == 4


def test_a_clock_that_jumps_back_ends_the_backoff_and_not_the_service(ctld):
    ctld.daemon.is_listening = False
    submit(ctld, n=3)
    ctld.now_s -= 86_400
    ctld.daemon.is_listening = True
    assert is_asked(ctld)


def test_a_clock_that_jumps_back_ends_a_users_backoff(ctld):
    ctld.daemon.answer = SILENCE
    submit(ctld, uid=7, n=3)
    ctld.now_s -= 86_400
    ctld.daemon.answer = PASS
    assert is_asked(ctld, uid=7)


def test_a_clock_that_jumps_back_inside_a_call_ends_the_call(ctld):
    def jump(request):
        ctld.now_s -= 3600
        return b'{"v":1'

    ctld.daemon.answer = jump
    ctld.daemon.chunk_bytes = 1
    submit(ctld)
    assert ctld.lines()[-1] == "omnipilot: no good answer for uid 1000: timeout"


def test_a_clock_that_jumps_ahead_ends_the_call_and_opens_nothing(ctld):
    def jump(request):
        ctld.now_s += 3600
        return PASS

    ctld.daemon.answer = jump
    submit(ctld)
    ctld.daemon.answer = PASS
    assert is_asked(ctld)


CLOSED = {"a100": True, "h100": False}


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        ("a100", 2015), ("h100", 0), ("other", 0), ("a100,h100", 0), ("a100,a100", 2015),
        (None, 2015), (",", 0),
    ],
)  # fmt: skip
def test_without_an_answer_a_job_only_for_closed_partitions_is_refused(slurmctld, partition, code):
    slurmctld.setup(fail_closed=CLOSED)
    slurmctld.daemon.is_listening = False
    for _ in range(5):
        outcome = slurmctld.submit(SERVE, partition=partition)
        assert outcome.code == code
        assert outcome.is_untouched
    assert slurmctld.submit("#!/bin/bash\nhostname\n", partition="a100").code == 0


def test_a_refusal_for_want_of_an_answer_says_so(slurmctld):
    slurmctld.setup(fail_closed=CLOSED)
    slurmctld.daemon.answer = SILENCE
    (line,) = slurmctld.submit(SERVE).told
    assert line == (
        "Job rejected: omnipilot does not answer, and partition a100 takes no such job without its"
        " answer. Please try again in a minute."
    )


def test_without_a_default_partition_a_job_that_names_none_passes(slurmctld):
    slurmctld.setup(fail_closed=CLOSED)
    slurmctld.partitions = {"a100": 0}
    slurmctld.daemon.is_listening = False
    assert slurmctld.submit(SERVE).code == 0


def test_the_kill_file_opens_closed_partitions(slurmctld, tmp_path):
    (tmp_path / "off").touch()
    slurmctld.setup(fail_closed=CLOSED, kill_file=str(tmp_path / "off"))
    slurmctld.daemon.is_listening = False
    assert slurmctld.submit(SERVE).code == 0
