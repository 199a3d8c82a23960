"""Build vLLM's own argument parsers from the Python sources of an unpacked wheel, without torch.

In: a folder that holds `vllm/` as unpacked from a wheel (py files are enough). Out: the parser of
`vllm serve` (as the `vllm` command builds it), of `python -m vllm.entrypoints.openai.api_server`
and of the legacy `vllm.entrypoints.api_server`. Used by vllm_options.py and vllm_oracle_cases.py,
one process a version. Needs pydantic, regex, pyyaml, numpy, msgspec and typing_extensions.

Only the modules that define or feed the parser are executed (REAL); every other import of vLLM's,
its own modules included, is answered by a stub whose attributes are empty classes.
"""

# stubs take any call (ARG); argparse has no public way to list its actions (SLF001)
# ruff: noqa: ARG001, ARG002, ARG005, SLF001

from __future__ import annotations

import abc
import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import re
import runpy
import sys
import types
import typing
from unittest.mock import MagicMock

from pydantic_core import core_schema

if typing.TYPE_CHECKING:
    from pathlib import Path

#: modules of vLLM that are executed; everything else of it is a stub
REAL = re.compile(
    r"vllm\.(?:"
    r"engine(?:\.arg_utils)?|config(?:\..*)?|utils(?:\.(?!torch_utils|flashinfer|gc_utils).*)?"
    r"|entrypoints(?:\.(?:openai|common|launchers|serve|cli|utils|constants))?"
    r"|entrypoints\..*cli_args|entrypoints\.cli\.(?:main|serve)|scripts"
    r"|entrypoints\.(?:openai\.)?api_server|entrypoints\.launchers\.api_server(?:\.entry)?"
    r"|transformers_utils(?:\.utils)?|usage(?:\.usage_lib)?|envs|logger|version"
    r"|platforms(?:\.interface)?|v1(?:\.attention(?:\.backends(?:\.registry)?)?)?"
    r")$"
)
ALWAYS_STUBBED = frozenset({"torch", "transformers"})


class _Meta(abc.ABCMeta):
    """Class attributes of stubs exist, whatever they are called, and `X | None` is Any."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Mock(name=name)

    def __or__(cls, other: object) -> object:
        return typing.Any

    __ror__ = __or__

    def __iter__(cls) -> typing.Iterator[object]:
        return iter(())


class _Mock(MagicMock):
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        return _any_schema()


def _any_schema() -> object:
    return core_schema.any_schema()


def _instance_attribute(self: object, name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Mock(name=name)


def _stub_class(name: str, module: str) -> type:
    def call(self: object, *args: object, **kwargs: object) -> object:
        return args[0] if args and callable(args[0]) else self

    return _Meta(
        name,
        (),
        {
            "__module__": module,
            "__getattr__": _instance_attribute,
            "__iter__": lambda self: iter(()),
            "__init__": lambda self, *args, **kwargs: None,
            "__call__": call,
            "__class_getitem__": classmethod(lambda cls, item: cls),
            "__get_pydantic_core_schema__": classmethod(lambda cls, s, h: _any_schema()),
        },
    )


class _Stub(types.ModuleType):
    """A module any attribute of which exists: an empty class usable as base or annotation."""

    __path__: typing.ClassVar[list[str]] = []
    __version__ = "9.9.9"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        value = _stub_class(name, self.__name__)
        if re.match("k[A-Z]", name):  # constants such as kFp8StaticTensorSym are QuantKeys
            value = self.QuantKey()
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top == "vllm":
            real = name == "vllm" or REAL.match(name)
            return None if real else importlib.machinery.ModuleSpec(name, self, is_package=True)
        if top in ALWAYS_STUBBED or isinstance(sys.modules.get(top), _Stub):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if top in sys.stdlib_module_names or name != top or not _imported_by_vllm():
            return None
        if importlib.machinery.PathFinder.find_spec(top):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _imported_by_vllm() -> bool:
    frame: types.FrameType | None = sys._getframe(2)
    while frame and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and "/vllm/" in frame.f_code.co_filename


def quantization_methods(folder: Path) -> list[str]:
    """Read the names of QUANTIZATION_METHODS from the source, without running it."""
    path = folder / "vllm/model_executor/layers/quantization/__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if "QuantizationMethods" in names and isinstance(node.value, ast.Subscript):
            return [e.value for e in node.value.slice.elts]
        if "QUANTIZATION_METHODS" in names and isinstance(node.value, ast.List):
            return [e.value for e in node.value.elts]
        if "QUANTIZATION_METHODS" in names and isinstance(node.value, ast.Dict):
            return [key.value for key in node.value.keys]
    raise LookupError(f"{path}: no QUANTIZATION_METHODS")


def prepare(folder: Path, version: str) -> None:
    """Install the stubs and a bare `vllm` package; call once per process, before building."""
    sys.meta_path.insert(0, _Finder())
    sys.path.insert(0, str(folder))
    package = types.ModuleType("vllm")
    package.__path__ = [str(folder / "vllm")]
    package.__version__ = version
    sys.modules["vllm"] = package
    real_version = importlib.metadata.version

    def version_or_any(name: str) -> str:
        try:
            return real_version(name)
        except importlib.metadata.PackageNotFoundError:
            return "9.9.9"

    importlib.metadata.version = version_or_any
    platforms = importlib.import_module("vllm.platforms")
    interface = importlib.import_module("vllm.platforms.interface")
    platforms._current_platform = interface.UnspecifiedPlatform()
    platforms._current_platform.device_type = "cuda"
    quantization = importlib.import_module("vllm.model_executor.layers.quantization")
    methods = quantization_methods(folder)
    quantization.QUANTIZATION_METHODS = methods
    quantization.QuantizationMethods = typing.Literal[tuple(methods)]
    logging.disable(logging.CRITICAL)


class _Captured(Exception):  # noqa: N818  (not an error: it carries the parser out of main())
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def _first_parser(run: typing.Callable[[], object]) -> argparse.ArgumentParser:
    """Return the parser whose parse_args `run` calls first."""
    flexible = parser_class()
    real = flexible.parse_args

    def capture(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> None:
        raise _Captured(self)

    flexible.parse_args = capture
    try:
        run()
    except _Captured as captured:
        return captured.parser
    finally:
        flexible.parse_args = real
    raise LookupError("no parser was built")


def parser_class() -> type[argparse.ArgumentParser]:
    """Return this version's FlexibleArgumentParser."""
    for name in ("vllm.utils.argparse_utils", "vllm.utils"):
        if _has(name):
            return importlib.import_module(name).FlexibleArgumentParser
    raise LookupError("no FlexibleArgumentParser")


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _run_as_main(module: str) -> typing.Callable[[], object]:
    return lambda: runpy.run_module(module, run_name="__main__")


def build(form: str) -> argparse.ArgumentParser | None:
    """Return the parser of a form (serve, api_server, legacy), None where the version has none.

    The parser of `serve` is the whole `vllm` command's: its first word is `serve`.
    """
    modules = {
        "serve": ("vllm.entrypoints.cli.main", "vllm.scripts"),
        "api_server": (
            "vllm.entrypoints.launchers.api_server.entry",
            "vllm.entrypoints.openai.api_server",
        ),
        "legacy": ("vllm.entrypoints.api_server",),
    }[form]
    for name in modules:
        if _has(name):
            sys.argv = ["vllm", *(["serve"] if form == "serve" else [])]  # 0.9.0 looks at it
            return _without_empty_choices(_first_parser(_run_as_main(name)))
    return None


def _without_empty_choices(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Lift restrictions to names that a stub does not know, such as tool parsers in 0.10.0."""
    for action in (subparser(parser) if parser._subparsers else parser)._actions:
        if action.choices is not None and not isinstance(action.choices, dict):
            action.choices = list(action.choices) or None
    return parser


def subparser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of `serve` inside that of the `vllm` command."""
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices["serve"]


def engine_options() -> argparse.ArgumentParser:
    """Return a parser with the engine's options alone, as the legacy server starts from."""
    arguments = importlib.import_module("vllm.engine.arg_utils")
    return arguments.AsyncEngineArgs.add_cli_args(parser_class()())
