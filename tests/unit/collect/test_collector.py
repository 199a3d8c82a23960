"""A collector beside a real HTTP server keeps its start and its steady stretches, once each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.collect.collector import Collector, Watch, get
from omnipilot_slurm.collect.power import PowerSample
from omnipilot_slurm.records import Arm
from omnipilot_slurm.sandbox import vllm_stand_in
from omnipilot_slurm.store.benchmarks import Benchmark, benchmarks
from omnipilot_slurm.store.database import open_for_reading, open_for_writing
from omnipilot_slurm.store.server_starts import ServerStart, server_starts
from omnipilot_slurm.store.setups import Setup
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

STAND_IN = Path(vllm_stand_in.__file__)
MODEL = "Qwen/Qwen2.5-7B-Instruct"
#: short answers, so that a stretch holds enough of them
FAST = {"OMNIPILOT_STAND_IN_TTFT_MS": "10", "OMNIPILOT_STAND_IN_TPOT_MS": "1"}
SETUP = Setup(
    model=MODEL,
    arm=Arm(
        partition=None, gres_type=None, gpu="h100", n_gpus=1, n_nodes=1, tensor_parallel=1,
        pipeline_parallel=1, data_parallel=1, expert_parallel=False, precision="bf16",
        kv_cache_dtype="auto",
    ),
)  # fmt: skip


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "records").mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "OMNIPILOT_RECORDS": str(tmp_path / "records"),
        "OMNIPILOT_STAND_IN": "serve",
        **FAST,
    }


@contextmanager
def server(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The stand-in engine, its output in `log`."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(STAND_IN), "serve", MODEL, "--port", str(port)],
            stdout=log,
            stderr=log,
            env=environment(tmp_path),
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def load(tmp_path: Path, port: int, n_requests: int, concurrency: int) -> None:
    subprocess.run(
        [
            sys.executable, str(STAND_IN), "bench", "serve", "--model", MODEL, "--port", str(port),
            "--num-prompts", str(n_requests), "--max-concurrency", str(concurrency),
            "--random-input-len", "100", "--random-output-len", "90",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        env=environment(tmp_path),
    )  # fmt: skip


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.starts: list[ServerStart] = []
        self.runs: list[Benchmark] = []

    def start(self, row: ServerStart, /) -> None:
        self.starts.append(row)

    def run(self, row: Benchmark, /) -> None:
        self.runs.append(row)


class Here:
    """The real clock and wire, and GPUs that draw 300 W."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)

    def get(self, url: str, /) -> str | None:
        return get(url)

    def power(self) -> PowerSample:
        now = time.time()
        return PowerSample(now - 0.01, now, 300.0)


def watch(tmp_path: Path, port: int, **changes: float) -> Watch:
    times = {"period_s": 0.2, "stretch_s": 1.5, "start_timeout_s": 30.0} | changes
    return Watch(
        url=f"http://127.0.0.1:{port}",
        setup=SETUP,
        started_at=time.time(),
        log=tmp_path / "log",
        job_id="4711",
        **times,
    )


def test_a_server_is_watched_from_its_start_to_its_end(tmp_path: Path) -> None:
    port, kept, said = free_port(), Kept(), list[str]()
    collector = Collector(watch(tmp_path, port), Here(), kept, said.append)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(collector.run)
        time.sleep(0.3)
        with server(tmp_path, port) as process:
            while not kept.starts:
                time.sleep(0.05)
            load(tmp_path, port, n_requests=160, concurrency=4)
            process.terminate()
            assert watching.result(60) is LaunchOutcome.OK
    (start,) = kept.starts
    assert (start.outcome, start.job_id) == (LaunchOutcome.OK, "4711")
    assert start.setup.software.vllm == "0.11.0"
    assert (start.figures.weights_gib, start.figures.activation_gib) == (14.9889, 4.76)
    assert (start.figures.n_kv_tokens, start.figures.engine_s) == (420896, 1.63)
    assert start.figures.cold_start_s is not None
    assert start.figures.cold_start_s > 0.3

    assert kept.runs
    run = kept.runs[0]
    assert (run.load.mode, run.load.isl, run.load.osl) == ("online_closed_loop", 100.0, 90.0)
    assert run.load.concurrency is not None
    assert 3 <= run.load.concurrency <= 4
    # four requests at a time, each of 90 tokens in some 0.1 s and the machine's own time
    assert 300 < run.targets["output_tok_s"] < 4000
    assert 0.5 <= run.targets["tpot_ms"] <= 5
    assert run.targets["power_w"] == pytest.approx(300.0)
    assert run.window is not None
    assert run.window.n_power_samples >= 3
    assert len({each.content_hash for each in kept.runs}) == len(kept.runs)


def test_a_start_that_fails_is_told_by_its_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
    kept = Kept()
    assert Collector(watch(tmp_path, free_port()), Here(), kept, print).run() is LaunchOutcome.OOM
    assert [each.outcome for each in kept.starts] == [LaunchOutcome.OOM]
    assert kept.starts[0].figures.cold_start_s is None
    assert kept.runs == []


def test_a_server_that_never_comes_is_given_up(tmp_path: Path) -> None:
    kept = Kept()
    collector = Collector(watch(tmp_path, free_port(), start_timeout_s=0.0), Here(), kept, print)
    assert collector.run() is LaunchOutcome.TIMEOUT
    assert [each.outcome for each in kept.starts] == [LaunchOutcome.TIMEOUT]


def arguments(tmp_path: Path, port: int, *more: str) -> list[str]:
    return [
        "collect", "--url", f"http://127.0.0.1:{port}", "--log", str(tmp_path / "log"),
        "--model", MODEL, "--gpu", "h100", "--job", "7", "--period", "0.2", "--stretch", "1",
        "--started-at", "1000", "--store", str(tmp_path / "o.db"), *more,
    ]  # fmt: skip


def test_the_command_keeps_rows_in_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    with server(tmp_path, port), ThreadPoolExecutor(1) as pool:
        while get(f"http://127.0.0.1:{port}/health") is None:
            time.sleep(0.05)
        loading = pool.submit(load, tmp_path, port, 160, 4)
        assert main(arguments(tmp_path, port, "--for", "3")) == 0
        loading.result()
        # the same start, watched again, is the same row
        assert main(arguments(tmp_path, port, "--for", "0.1")) == 0
    with closing(open_for_reading(tmp_path / "o.db")) as connection:
        (start,) = server_starts(connection, 0.0)
        runs = list(benchmarks(connection))
    assert (start.started_at, start.setup.model, start.setup.arm.gpu) == (1000.0, MODEL, "h100")
    assert start.setup.model_facts is not None
    assert runs
    assert {run.source for run in runs} == {"collect"}
    assert "start: ok" in capsys.readouterr().err


def test_rows_that_a_locked_database_refuses_are_kept_and_written_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    holder = open_for_writing(tmp_path / "o.db")
    holder.execute("BEGIN IMMEDIATE")
    with server(tmp_path, port), ThreadPoolExecutor(1) as pool:
        while get(f"http://127.0.0.1:{port}/health") is None:
            time.sleep(0.05)
        words = arguments(tmp_path, port, "--for", "9")
        # the job is told by options alone, since who holds the database holds it for reading too
        words[words.index("--job") : words.index("--job") + 2] = []
        watching = pool.submit(main, words)
        said = ""
        while "; 1 rows wait\n" not in said:
            said += capsys.readouterr().err
            assert not watching.done(), said
            time.sleep(0.05)
        holder.execute("ROLLBACK")
        holder.close()
        load(tmp_path, port, 260, 4)
        assert watching.result(60) == 0
    with closing(open_for_reading(tmp_path / "o.db")) as connection:
        assert len(list(server_starts(connection, 0.0))) == 1
        assert list(benchmarks(connection))


def test_killed_at_any_point_nothing_is_lost_or_double(tmp_path: Path) -> None:
    port = free_port()
    program = "import sys; from omnipilot_slurm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with server(tmp_path, port), ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, tmp_path, port, 300, 4)
        for after_s in (2.0, 3.1, 3.7):
            process = subprocess.Popen([sys.executable, "-c", program, *arguments(tmp_path, port)])
            time.sleep(after_s)
            process.send_signal(signal.SIGKILL)
            process.wait()
        loading.result()
    with closing(open_for_reading(tmp_path / "o.db")) as connection:
        assert len(list(server_starts(connection, 0.0))) == 1
        windows = sorted(
            (run.window.start, run.window.end)
            for run in benchmarks(connection)
            if run.window is not None
        )
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert all(one[1] <= other[0] for one, other in pairwise(windows))


def test_an_address_that_is_no_web_address_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "--url", "file:///etc/passwd", "--store", str(tmp_path / "o.db")]) == 2
    assert capsys.readouterr().err == (
        "error: --url must start with http:// or https://, was 'file:///etc/passwd'\n"
    )


def test_what_is_no_exposition_is_told_and_not_kept(tmp_path: Path) -> None:
    class Wrong(Here):
        def get(self, url: str, /) -> str | None:
            return "" if url.endswith("/health") else json.dumps({"not": "metrics"})

    kept, said = Kept(), list[str]()
    collector = Collector(watch(tmp_path, 1, period_s=0.0), Wrong(), kept, said.append)
    assert collector.run() is LaunchOutcome.OK
    assert kept.runs == []
    assert said[-1] == (
        "http://127.0.0.1:1/metrics: line 1: must be `name{labels} value`, "
        'was \'{"not": "metrics"}\''
    )


def test_a_clock_that_is_set_back_costs_one_stretch_and_no_more(tmp_path: Path) -> None:
    class Jumping(Here):
        """Each look takes a second; after the fifth the clock shows an hour less."""

        def __init__(self) -> None:
            self.n_looks = 0

        def now(self) -> float:
            return 1e6 + self.n_looks - (3600 if self.n_looks > 5 else 0)

        def sleep(self, seconds: float, /) -> None:
            pass

        def get(self, url: str, /) -> str | None:
            if url.endswith("/health"):
                return ""
            self.n_looks += 1
            n = 100 * self.n_looks
            lengths = "".join(
                f"vllm:request_{name}_tokens_{part} {n * size}\n"
                for name, length in (("prompt", 64), ("generation", 32))
                for part, size in (("count", 1), ("sum", length))
            )
            return (
                None
                if self.n_looks > 14
                else (
                    f"vllm:num_requests_running 4\nvllm:request_success_total {n}\n"
                    f"vllm:generation_tokens_total {32 * n}\n" + lengths
                )
            )

    kept = Kept()
    collector = Collector(watch(tmp_path, 1, period_s=0.0, stretch_s=3.0), Jumping(), kept, print)
    collector.run()
    windows = [run.window for run in kept.runs]
    assert all(window is not None and window.end - window.start <= 3.0 for window in windows)
    assert {run.targets["output_tok_s"] for run in kept.runs} == {3200.0}
    assert len(kept.runs) >= 3
