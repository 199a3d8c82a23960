"""Write omnipilot_slurm/vllm/architectures.py: which vLLM versions know which model architecture.

    python tools/vllm_architectures.py WHEELS > omnipilot_slurm/vllm/architectures.py

In: a folder with the unpacked Python sources of one vLLM version a folder, as for
vllm_options.py. Out: the module, on standard output. Nothing of vLLM is imported: the registry and
the model classes are read as syntax trees. A class counts as without pipeline parallelism only
where it and all its bases were found and none says SupportsPP; before that interface, where the
configuration's list of names lacks it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from omnipilot_slurm.vllm.options import VERSIONS

_SKIPPED = (
    "EMBED",
    "POOL",
    "CROSS",
    "LATE",
    "RERANK",
    "SPECUL",
    "CLASSIF",
    "REWARD",
    "TRANSFORMERS",
    "BACKEND",
)
#: before it, pipeline parallelism was a list of names in the configuration, not an interface
_FIRST_WITH_INTERFACE = VERSIONS.index("0.6.3.post1")
_LISTED = re.compile(r"_PP_SUPPORTED_MODELS = (\[.*?\])", re.DOTALL)
#: bases that are not models of their own and settle nothing
_ROOTS = {"Module", "Protocol", "ABC", "Generic", "object", "PreTrainedModel"}
HEADER = '''\
"""Which vLLM versions know which model architecture, and which without pipeline parallelism.

Written by `python tools/vllm_architectures.py WHEELS` from the model registries of the versions in
options.py; do not edit. A row is: architecture, versions that register it, versions in which its
class does not support pipeline parallelism ("-": none found). Versions are ranges of positions in
options.VERSIONS. Read by launch checks; an architecture that all know, with pipeline parallelism,
has no row.
"""

ARCHITECTURES = """\\
'''


@dataclass
class Sources:
    """The model modules of one version, parsed when asked for."""

    folder: Path
    modules: dict[str, tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]] = field(
        default_factory=dict
    )

    def module(self, name: str) -> tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]:
        """Return a module's classes and what it imports by name: (module, name there)."""
        if name not in self.modules:
            self.modules[name] = self._parse(name)
        return self.modules[name]

    def _parse(self, name: str) -> tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]:
        path = self.folder.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                break
        else:
            return {}, {}
        classes, imports = {}, {}
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = node
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    imports[alias.asname or alias.name] = (node.module, alias.name)
        return classes, imports


def registered(folder: Path) -> dict[str, tuple[str, str]]:
    """Return architecture -> (module, class) of the generating models of one version."""
    file = folder / "registry.py"
    tree = ast.parse((file if file.exists() else folder / "__init__.py").read_text("utf-8"))
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = target.id if isinstance(target, ast.Name) else ""
        if not name.endswith("_MODELS") or any(word in name for word in _SKIPPED):
            continue
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                module, cls, *_ = ast.literal_eval(value)
                found.setdefault(key.value, (module, cls))
    return found


def supports_pp(sources: Sources, module: str, cls: str, depth: int = 8) -> bool | None:
    """Return whether a class or one of its bases says SupportsPP; None: not all were found."""
    classes, imports = sources.module(module)
    if cls in imports and cls not in classes:
        return supports_pp(sources, _local(imports[cls][0]), imports[cls][1], depth - 1)
    if cls not in classes or depth == 0:
        return None
    answers = [_base(sources, module, base, depth) for base in classes[cls].bases]
    if True in answers or "supports_pp" in ast.unparse(classes[cls]):
        return True
    return None if None in answers else False


def _base(sources: Sources, module: str, base: ast.expr, depth: int) -> bool | None:
    name = ast.unparse(base).split("[", maxsplit=1)[0].rsplit(".", maxsplit=1)[-1]
    if name == "SupportsPP":
        return True
    if name in _ROOTS or name.startswith(("Supports", "Is", "Has", "Mixture", "Vllm")):
        return False
    return supports_pp(sources, module, name, depth - 1)


def _local(module: str) -> str:
    return module.removeprefix("vllm.model_executor.models.")


def listed_pp(wheel: Path) -> set[str]:
    """Return the architectures that an old version's configuration lets be split into stages."""
    found = _LISTED.search((wheel / "vllm" / "config.py").read_text("utf-8"))
    return set() if found is None else set(ast.literal_eval(found[1]))


def ranges(positions: list[int]) -> str:
    """Return positions as options.py writes versions ("0-3,7-"); "-" for none."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    last = len(VERSIONS) - 1
    words = [
        f"{a}-" if b == last and a != b else (str(a) if a == b else f"{a}-{b}") for a, b in runs
    ]
    return ",".join(words) or "-"


def main(wheels: Path) -> None:
    """Print the module."""
    known, without_pp = defaultdict(list), defaultdict(list)
    for position, version in enumerate(VERSIONS):
        folder = wheels / version / "vllm" / "model_executor" / "models"
        sources = Sources(folder)
        listed = listed_pp(wheels / version) if position < _FIRST_WITH_INTERFACE else None
        for name, (module, cls) in registered(folder).items():
            known[name].append(position)
            lacks = name not in listed if listed else supports_pp(sources, module, cls) is False
            if lacks:
                without_pp[name].append(position)
    rows = [(name, ranges(known[name]), ranges(without_pp[name])) for name in sorted(known)]
    print(HEADER, end="")
    for row in rows:
        if row[1:] != ("0-", "-"):
            print(*row)
    print('"""')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
