"""Write omnipilot_slurm/vllm/options.py: every option of every vLLM version whose sources are here.

    pip download --no-deps vllm==X; unzip the wheel's *.py files into WHEELS/X/; then
    python tools/vllm_options.py compile WHEELS > omnipilot_slurm/vllm/options.py

In: a folder with one folder a version. Out: the module, on standard output. The parsers are vLLM's
own (vllm_parser.py); `dump FOLDER VERSION` prints one version's options as JSON. Needs what
vllm_parser.py needs, in the environment that runs this.
"""

# argparse has no public way to list the actions of a parser
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import vllm_parser

sys.path.insert(0, str(Path(__file__).parents[1]))
from omnipilot_slurm.vllm.versions import parse_version

#: what converts a value -> the letter that options.py uses
TYPE_LETTERS = {
    "int": "i",
    "check_port": "i",
    "FlexibleArgumentParser.check_port": "i",
    "float": "x",
    "human_readable_int": "h",
    "human_readable_int_or_auto": "H",
    "loads": "j",
    "PoolerConfig.from_json": "j",
    "KVTransferConfig.from_cli": "j",
    "CompilationConfig.from_cli": "p",
    "nullable_kvs": "k",
    "union_dict_and_str": "d",
}
HEADER = '''\
"""Every option of vLLM's command line, by version: data only, read by grammar.py.

Written by `python tools/vllm_options.py compile WHEELS` from the parsers of the vLLM versions
listed; do not edit. A row is: dest, kind, option strings, versions.
kind: first letter f flag, b flag with a --no- form, e flag with --no- and --disable-/--enable-
forms, t true/false, i int, h int with a suffix, H the same or auto, x float, s text, j JSON,
o JSON object with the keys in KEYS, d JSON object or text, k key=count pairs, m these or JSON,
p Python literal of an object or 0 to 3, q prints and quits; then n: also None; then + one or more
values, ? at most one; then S: only `vllm serve`, N: all but `vllm serve`, A: all but the legacy
server, L: only the legacy server.
versions: ranges of positions in VERSIONS.
"""
'''


def type_letters(action: argparse.Action) -> str:
    """Return the kind of an option without its arity: a letter, and n where None is a value."""
    converter: Any = action.type
    nullable = ""
    while getattr(converter, "__closure__", None) and "return_type" in (
        names := converter.__code__.co_freevars
    ):
        if converter.__name__ == "_optional_type":
            nullable = "n"
        converter = converter.__closure__[names.index("return_type")].cell_contents
    name = getattr(converter, "__qualname__", "")
    if name == "nullable_str":
        nullable = "n"
    letter = TYPE_LETTERS.get(name, "s")
    if name.endswith(("get_kwargs.<locals>.<lambda>", "parse_dataclass")):
        letter = "p" if _converts(action.type, "3") else "o"  # p: 0.9.0 and 0.9.1 use from_cli
    if letter == "j" and _converts(action.type, "a=1"):
        letter = "m"
    return letter + nullable


def _converts(converter: Any, text: str) -> bool:
    try:
        converter(text)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return True


def keys(action: argparse.Action) -> list[str]:
    """Return the keys that the JSON of an option may have, [] where they are not checked."""
    converter: Any = action.type
    while getattr(converter, "__name__", "") in ("_optional_type", "_parse_type"):
        names = converter.__code__.co_freevars
        converter = converter.__closure__[names.index("return_type")].cell_contents
    name = getattr(converter, "__qualname__", "")
    if not name.endswith(("parse_dataclass", "get_kwargs.<locals>.<lambda>")):
        return []
    cls = converter.__defaults__[0]
    config = getattr(cls, "__pydantic_config__", {})
    if not isinstance(cls, type) or (config and config.get("extra") != "forbid"):
        return []
    if name.endswith("parse_dataclass") and not config:
        return []
    return [field.name for field in dataclasses.fields(cls) if field.init]


def kind(action: argparse.Action) -> str:
    """Return the kind of an option, as the head of options.py explains it."""
    special = {
        "_HelpAction": "q",
        "_VersionAction": "q",
        "_StoreTrueAction": "f",
        "_StoreFalseAction": "f",
        "BooleanOptionalAction": "b",
        "EnableDisableAction": "e",
        "StoreBoolean": "t?",
    }.get(type(action).__name__)
    if special:
        return special
    arity = {None: "", "+": "+", "?": "?", "*": "*"}[action.nargs]
    return type_letters(action) + arity


def written_options(action: argparse.Action, letter: str) -> list[str]:
    """Return the option strings as defined, without the negative ones that the kind implies."""
    if letter not in "be":
        return list(action.option_strings)
    plain = [o for o in action.option_strings if not o.startswith("--no-")]
    if letter == "e":
        negative = action.negative_option_strings
        plain = [o for o in plain if o not in negative]
    return plain


def choices(action: argparse.Action) -> list[str]:
    """Return the values an option is restricted to, [] where it is not; ~ stands for None."""
    values = [value for value in action.choices or () if value != "None"]
    found = ["~" if value is None else str(value) for value in values]
    return found if all(re.fullmatch(r"~|[\w.+/-]+", value) for value in found) else []


def dump(folder: Path, version: str) -> dict[str, Any]:
    """Return {forms: {form: {positional, options}}} of one version."""
    vllm_parser.prepare(folder, version)
    forms = {}
    for form in ("serve", "api_server", "legacy"):
        try:
            parser = vllm_parser.build(form)
        except TypeError:  # 0.7.x: the legacy server's own add_argument call is wrong
            parser = None
        if parser is None:  # no such server in this version: which options are the engine's
            parser = vllm_parser.engine_options()
        if form == "serve":
            parser = vllm_parser.subparser(parser)
        positional = [a for a in parser._actions if not a.option_strings]
        options = [a for a in parser._actions if a.option_strings]
        forms[form] = {
            "positional": "".join(a.nargs or "1" for a in positional),
            "options": [
                [a.dest, kind(a), written_options(a, kind(a)[0]), choices(a), keys(a)]
                for a in options
            ],
        }
    return {"version": version, "forms": forms}


def ranges(positions: set[int], n: int) -> str:
    """Format positions as `a-b,c-`: `c-` runs to the last of the n versions."""
    runs: list[list[int]] = []
    for position in sorted(positions):
        if runs and runs[-1][1] == position - 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    texts = []
    for first, last in runs:
        end = "" if last == n - 1 else str(last)
        texts.append(f"{first}" if first == last != n - 1 else f"{first}-{end}")
    return ",".join(texts)


def scope(present: set[str]) -> str:
    """Return the mark of the forms that have an option: "" when all three do."""
    if present == {"legacy"}:
        return "L"
    if "legacy" in present:
        return "" if "serve" in present else "N"
    return "A" if "api_server" in present else "S"


def option_rows(dumps: list[dict[str, Any]]) -> list[str]:
    """Return the option rows, each with its version ranges."""
    rows: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for position, one in enumerate(dumps):
        forms: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for form, parsed in one["forms"].items():
            for dest, letters, strings, _, _ in parsed["options"]:
                forms[dest, letters, ",".join(strings)].add(form)
        for (dest, letters, strings), present in forms.items():
            rows[dest, letters + scope(present), strings].add(position)
    return [f"{' '.join(key)} {ranges(at, len(dumps))}" for key, at in sorted(rows.items())]


def name_rows(dumps: list[dict[str, Any]], column: int) -> list[str]:
    """Return rows of the names allowed for each dest (choices or keys) with their versions."""
    values: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for position, one in enumerate(dumps):
        for parsed in one["forms"].values():
            for option in parsed["options"]:
                for value in option[column]:
                    values[option[0]][value].add(position)
    rows = []
    for dest, by_value in sorted(values.items()):
        by_range: dict[str, list[str]] = defaultdict(list)
        for value, at in by_value.items():
            by_range[ranges(at, len(dumps))].append(value)
        cells = [f"{at}:{'|'.join(sorted(names))}" for at, names in sorted(by_range.items())]
        rows.append(f"{dest} {' '.join(cells)}")
    return rows


def positions(dumps: list[dict[str, Any]], form: str, positional: str) -> str:
    """Return the ranges of the versions whose form takes its positional in one way."""
    at = {i for i, one in enumerate(dumps) if one["forms"][form]["positional"] == positional}
    return ranges(at, len(dumps))


def module_text(dumps: list[dict[str, Any]]) -> str:
    """Return the text of options.py."""
    required = positions(dumps, "serve", "1")
    ignored = positions(dumps, "api_server", "?")
    return "\n".join(
        [
            HEADER,
            "# the rows are longer than a line of code",
            "# ruff: noqa: E501",
            "",
            "VERSIONS = (",
            *(f'    "{one["version"]}",' for one in dumps),
            ")",
            "",
            "#: versions whose `vllm serve` refuses to go without its positional model",
            f'MODEL_REQUIRED = "{required}"',
            "#: versions whose api_server takes (and ignores) a positional",
            f'API_SERVER_POSITIONAL = "{ignored}"',
            "",
            'OPTIONS = """\\',
            *option_rows(dumps),
            '"""',
            "",
            "#: dest, then version ranges with the values allowed in them",
            'CHOICES = """\\',
            *name_rows(dumps, 3),
            '"""',
            "",
            "#: dest, then version ranges with the keys its JSON may have in them",
            'KEYS = """\\',
            *name_rows(dumps, 4),
            '"""',
            "",
        ]
    )


def compile_module(wheels: Path) -> str:
    """Dump every version in a process of its own and return the text of options.py."""
    folders = [f for f in wheels.iterdir() if (f / "vllm/engine/arg_utils.py").exists()]
    dumps = []
    for folder in sorted(folders, key=lambda f: parse_version(f.name)):
        command = [sys.executable, "-W", "ignore", __file__, "dump", str(folder), folder.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        dumps.append(json.loads(done.stdout.splitlines()[-1]))
        print(folder.name, file=sys.stderr)
    return module_text(dumps)


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        print(json.dumps(dump(Path(sys.argv[2]), sys.argv[3])))
    else:
        print(compile_module(Path(sys.argv[2])), end="")
