"""The rooms of the code: core is pure, the daemon stays light, the wheel is whole."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "omnipilot_slurm"
CORE_FILES = ("records.py", "facts.py", "errors.py", "cluster_facts.py", "site_settings.py")
CORE_FOLDERS = ("script", "vllm", "predict", "decide")
SHELL_IN_CORE = {PACKAGE / "predict" / "artifact.py"}
CORE = sorted(
    path
    for path in (
        *(PACKAGE / name for name in CORE_FILES),
        *(path for folder in CORE_FOLDERS for path in (PACKAGE / folder).glob("*.py")),
        *(path for folder in CORE_FOLDERS for path in (PACKAGE / folder).glob("*/*.py")),
    )
    if path not in SHELL_IN_CORE
)
SHIPPED = ("omnipilot_slurm", "etc", "lua", "*.toml", "*.cfg", "README.md", "LICENSE")
IO_MODULES = frozenset(
    "os io sys pathlib socket selectors subprocess multiprocessing threading asyncio time datetime"
    " random secrets uuid logging tempfile shutil glob sqlite3 urllib http ssl signal resource"
    " fcntl mmap importlib ctypes pickle yaml click joblib sklearn scipy".split()
)
CORE_PACKAGES = frozenset({"omnipilot_slurm." + name for name in CORE_FOLDERS})
CORE_MODULES = frozenset({"omnipilot_slurm." + name.removesuffix(".py") for name in CORE_FILES})


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return names


def is_core(name: str) -> bool:
    if name.startswith("omnipilot_slurm.predict.artifact"):
        return False
    parents = {".".join(name.split(".")[:n]) for n in (2, 3)}
    return name == "omnipilot_slurm" or bool(parents & (CORE_PACKAGES | CORE_MODULES))


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_core_imports_neither_io_nor_shell(path: Path) -> None:
    names = imported(path)
    assert {name for name in names if name.split(".")[0] in IO_MODULES} == set()
    ours = {name for name in names if name.startswith("omnipilot_slurm.")}
    assert {name for name in ours if not is_core(name)} == set()


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_core_opens_and_prints_nothing(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & {"open", "print", "input", "exec", "eval", "__import__"} == set()


def test_daemon_with_its_decider_loads_nothing_heavy() -> None:
    program = (
        "import sys, json, omnipilot_slurm.daemon.main, omnipilot_slurm.daemon.source;"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    loaded = set(json.loads(done.stdout))
    assert loaded & {"sklearn", "scipy", "pandas", "joblib", "click", "matplotlib"} == set()
    assert {"numpy", "tree_sitter", "yaml"} <= loaded


def test_wheel_in_an_empty_environment_advises_with_its_own_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    tracked = (
        subprocess.run(
            ["git", "ls-files", "-z", "--", *SHIPPED], check=True, capture_output=True, cwd=ROOT
        )
        .stdout.decode()
        .split("\0")
    )
    for name in filter(None, tracked):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)]
    subprocess.run(built, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    (packages,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    installed = [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(installed, check=True, cwd=tmp_path)
    # what the package needs, as a plain folder on the path: nothing in it is set up by itself
    (packages / "needs.pth").write_text(next(p for p in sys.path if p.endswith("site-packages")))
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/bash\n#SBATCH --gres=gpu:a100:1\nvllm serve meta-llama/Llama-3.1-70B\n")
    advise = [str(tmp_path / "empty" / "bin" / "omnipilot"), "advise", "--json", str(job)]
    done = subprocess.run(advise, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["verdict"] == "rewrite"
    shipped = packages / "omnipilot_slurm" / "_data"
    for name in ("etc/models.yaml", "etc/omnipilotd.service", "lua/omnipilot.lua"):
        assert (shipped / name).is_file(), name


def test_no_two_test_files_have_the_same_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    # without packages, pytest could import only one of them
    assert sorted(names) == sorted(set(names))
