"""The two Lua files as a site gets them."""

from __future__ import annotations

import importlib
import shutil
import subprocess

import pytest
from fake_slurmctld import LUA_FOLDER, LUA_VERSIONS

EXAMPLE = LUA_FOLDER / "job_submit.lua"
MODULE = LUA_FOLDER / "omnipilot.lua"
INSTALLED = "/etc/slurm/omnipilot.lua"


def run(*argv: object) -> str:
    words = [str(word) for word in argv]
    assert shutil.which(words[0]), f"install {words[0]}"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_luacheck_finds_nothing():
    run(
        "luacheck", "--no-config", "--std", "lua51", "--read-globals", "slurm",
        "--globals", "slurm_job_submit", "slurm_job_modify", "--", LUA_FOLDER,
    )  # fmt: skip


@pytest.mark.parametrize("path", [EXAMPLE, MODULE], ids=lambda path: path.name)
def test_the_files_compile_as_lua_5_1(path):
    run("luac5.1", "-p", path)


def test_the_example_is_short_enough_to_read():
    assert len(EXAMPLE.read_text().splitlines()) <= 25


class Loaded:
    """The example run in a Lua of its own, with a slurm table that keeps what is logged."""

    def __init__(self, version: str, module_text: str | None, tmp_path) -> None:
        module = tmp_path / "omnipilot.lua"
        if module_text is not None:
            module.write_text(module_text)
        lua = importlib.import_module(f"lupa.{version}").LuaRuntime()
        self.log: list[str] = []
        lua.globals()["note"] = self.log.append
        lua.execute("slurm = {SUCCESS = 0, log_error = function(...) note(string.format(...)) end}")
        lua.execute(EXAMPLE.read_text().replace(INSTALLED, str(module)))
        self.submit = lua.globals()["slurm_job_submit"]
        self.modify = lua.globals()["slurm_job_modify"]
        self.job = lua.table_from({"script": "#!/bin/sh\nhostname\n"})
        self.parts = lua.table_from({})


@pytest.mark.parametrize("version", LUA_VERSIONS)
@pytest.mark.parametrize(
    "module_text",
    [
        None, "", "return", "return {", "return 5", "return {}", "error('x')", "error()", "\0\1\2",
        "return {setup = 1}",
    ],
)  # fmt: skip
def test_without_a_working_module_jobs_pass_and_one_line_says_so(version, module_text, tmp_path):
    loaded = Loaded(version, module_text, tmp_path)
    assert len(loaded.log) == 1
    assert loaded.log[0].startswith("omnipilot: not loaded, jobs pass unasked: ")
    assert loaded.submit(loaded.job, loaded.parts, 1000) == 0
    assert loaded.modify(loaded.job, loaded.job, loaded.parts, 1000) == 0


@pytest.mark.parametrize("version", LUA_VERSIONS)
def test_with_the_module_both_functions_answer(version, tmp_path):
    loaded = Loaded(version, MODULE.read_text(), tmp_path)
    assert not [line for line in loaded.log if "not loaded" in line]
    assert loaded.submit(loaded.job, loaded.parts, 1000) == 0
    assert loaded.modify(loaded.job, loaded.job, loaded.parts, 1000) == 0


def test_the_example_holds_the_path_that_a_package_installs_to():
    assert EXAMPLE.read_text().count(INSTALLED) == 1
