"""Python inside batch scripts: engines, servers that it starts, and what is not followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.script import python_source
from omnipilot_slurm.script.python_source import Offline, Started

IMPORT = "from vllm import LLM\n"
ENGINES: dict[str, Offline | None] = {
    "LLM('M/x')": Offline(arguments={"model": "M/x"}),
    "LLM(model='M/x', tensor_parallel_size=2, enforce_eager=True)": Offline(
        arguments={"model": "M/x", "tensor_parallel_size": 2, "enforce_eager": True}
    ),
    "M = 'M/x'\nllm = LLM(M, dtype=D)": Offline(arguments={"model": "M/x", "dtype": None}),
    "M = 'a'\nM = 'b'\nLLM(M)": Offline(arguments={"model": None}),
    "M = 'a'\nM += 'b'\nLLM(M)": Offline(arguments={"model": None}),
    "LLM('M/x', **options)": Offline(arguments={"model": "M/x"}, complete=False),
    "vllm.LLM(model=f'{m}/x')": Offline(arguments={"model": None}),
    "class LLM(Base): pass": None,
    "def f(:\n  LLM('M/x')": Offline(complete=False),
    "LLM(" + "[" * 100 + "]" * 100 + ")": Offline(complete=False),
    "LLM(" + "-" * 5000 + "1)": Offline(complete=False),
    "LLM(" + "lambda: " * 1000 + "0)": Offline(complete=False),
    "LLM('M/x')\n" + "x = 1\n" * 3000: Offline(complete=False),
    "print('no engine')": None,
}


@pytest.mark.parametrize("source", ENGINES)
def test_the_engine_of_an_offline_script_is_read(source: str) -> None:
    assert python_source.offline_engine(IMPORT + source) == ENGINES[source]


def test_an_engine_of_something_else_is_none_of_ours() -> None:
    assert python_source.offline_engine("from other import LLM\nLLM('M/x')") is None


SERVE = ("vllm", "serve", "M/x")
STARTED: dict[str, Started | None] = {
    "subprocess.Popen(['vllm', 'serve', 'M/x'])": Started(words=SERVE),
    "run(('/opt/bin/vllm', 'serve', M))": Started(words=("/opt/bin/vllm", "serve", None)),
    "M = 'M/x'\nrun(['vllm', 'serve', M, '-tp', str(2)])": Started(words=(*SERVE, "-tp", "2")),
    "N = 2\nrun(['vllm', 'serve', 'M/x', '-tp', str(N)])": Started(words=(*SERVE, "-tp", "2")),
    "run(['vllm', 'serve', 'M/x', *more])": Started(words=SERVE, is_open=True),
    "C = ['vllm', 'serve', 'M/x']\nrun(C)": Started(words=SERVE),
    "C = ['vllm', 'serve', 'M/x']\nC.append('-q')\nrun(C)": None,
    "C = ['vllm', 'serve', 'M/x']\nC += ['-q']\nrun(C)": None,
    "os.system('vllm serve M/x -tp 2')": Started(text="vllm serve M/x -tp 2"),
    "run([sys.executable, '-m', 'vllm.entrypoints.openai.api_server'])": Started(
        words=(None, "-m", "vllm.entrypoints.openai.api_server")
    ),
    "run(['vllm', 'serve', 'a'])\nrun(['vllm', 'serve', 'b'])": None,
    "run(build('vllm serve'))": None,
    "run(['echo', 'vllm serve'])": None,
    "run()": None,
    "run([": None,
    "starters[0](['vllm', 'serve', 'M/x'])": None,
}


@pytest.mark.parametrize("source", STARTED)
def test_a_server_that_python_starts_is_read(source: str) -> None:
    assert python_source.started(source) == STARTED[source]


@given(st.text(max_size=200) | st.text("vllmLM()[]{}='\"\n :-~,.*", max_size=200))
def test_any_text_is_read_as_python(text: str) -> None:
    python_source.offline_engine(IMPORT + "LLM('M')\n" + text)
    python_source.started("run(['vllm', 'serve', 'M'])\n" + text)
    python_source.starts_server(text)
