"""From what `omnipilot fit` is given to the questions it asks: options, a script, a command.

In: words and options as typed, the catalog. Out: Asked, one for each server. Called by `fit`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.local import Pending, find_model
from omnipilot_slurm.errors import CatalogError, UsageError
from omnipilot_slurm.records import Starts
from omnipilot_slurm.script import directives, serving, tres
from omnipilot_slurm.vllm import flags
from omnipilot_slurm.vllm.checks.outcome import outcome
from omnipilot_slurm.vllm.command_line import Effect
from omnipilot_slurm.vllm.fit import Question, Told, weaker
from omnipilot_slurm.vllm.report import CheckKind, Place
from omnipilot_slurm.vllm.variables import with_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.catalog.local import Folders
    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs, Launch
    from omnipilot_slurm.site_settings import VllmSettings
    from omnipilot_slurm.vllm.command_line import Problem

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")
_ASSIGNMENT = re.compile(r"(VLLM_\w+)=(.*)", re.DOTALL)
_SERVER_MODULES = {
    "vllm.entrypoints.openai.api_server": "openai.api_server",
    "vllm.entrypoints.api_server": "api_server",
}
_EFFECTS = {
    Effect.REFUSED: Starts.FAILS,
    Effect.UNSURE: Starts.UNSURE,
    Effect.WARNED: Starts.STARTS,
}
#: problems that are over once the option is left out
_LEFT_OUT = {"other_version", "unknown_option", "differs_by_version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The GPUs as told: a card's name, their number over all nodes, the nodes."""

    gpu: str | None = None
    n_gpus: int | None = None
    n_nodes: int = 1
    heads: int | None = None
    capability: str | None = None
    partition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cards to choose from, and the card that a GRES type stands for."""

    cards: tuple[GpuFacts, ...]
    gres: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One server to judge; `said` is how names were read, a line each."""

    question: Question
    said: tuple[str, ...]


class Reader:
    """Reads what was asked with one catalog, on one cluster.

    `vllm` is the version that the site runs where nothing else says one.
    """

    def __init__(
        self,
        catalog: Catalog,
        folders: Folders,
        *,
        vllm: VllmSettings,
        cluster: Cluster,
    ) -> None:
        self._catalog = catalog
        self._folders = folders
        self._vllm = vllm
        self._cluster = cluster

    def from_options(self, engine: EngineArgs, held: Held) -> Asked:
        """Return the question that options ask.

        Raises: UsageError for a number that cannot be, CatalogError for a name that is not known.
        """
        return self._asked(engine, held)

    def from_command(
        self, words: Sequence[str], variables: Mapping[str, str], version: str | None, held: Held
    ) -> Asked:
        """Return the question that a vLLM command asks.

        Raises: UsageError for a command that starts no server.
        """
        form, rest = _server(words)
        line = flags.parse(rest, version=version or self._vllm.version, form=form)
        set_here = {m[1]: m[2] for word in words if (m := _ASSIGNMENT.fullmatch(word))}
        engine = with_variables(flags.engine_args(line, version=version), {**variables, **set_here})
        return self._asked(engine, held, told=[*map(_told, line.problems)])

    def from_script(
        self, script: bytes, variables: Mapping[str, str], version: str | None, held: Held
    ) -> list[Asked]:
        """Return a question for each server that a batch script starts.

        Raises: UsageError for a script in which no server is seen.
        """
        submission, form = directives.submission_of(script, environment=variables)
        request = tres.request_of(submission, node_form=form)
        found = serving.find(submission, request)
        if not found.launches:
            raise UsageError(
                f"the script starts no vLLM server that can be read: {found.why or found.kind}",
                hint="omnipilot detect shows what is read in it",
            )
        of_job = replace(
            held,
            gpu=held.gpu or self._cluster.gres.get(request.type or "", request.type),
            n_gpus=held.n_gpus or request.total or None,
            n_nodes=max(held.n_nodes, request.n_nodes),
            partition=(submission.partition or "").partition(",")[0],
        )
        return [
            self._of_launch(launch, version, of_job, guessed=not held.gpu)
            for launch in found.launches
        ]

    def _of_launch(
        self, launch: Launch, version: str | None, held: Held, *, guessed: bool
    ) -> Asked:
        """Return one server's question; a GRES type that is no card's leaves the card open."""
        said = []
        if guessed and held.gpu and not self._is_card(held.gpu):
            said.append(f"the GPUs {held.gpu!r} are no card that is known; give --gpu")
            held = replace(held, gpu=None)
        engine = replace(launch.engine, vllm_version=version or launch.engine.vllm_version)
        told = [
            Told(outcome("options", CheckKind.FLAG, Starts.FAILS, text), "")
            for text in launch.problems
        ]
        asked = self._asked(engine, held, told=told)
        return replace(asked, said=(*said, *asked.said))

    def _asked(self, engine: EngineArgs, held: Held, *, told: Sequence[Told] = ()) -> Asked:
        said: list[str] = []
        engine = self._versioned(engine, held.partition, said)
        model = self._model(engine.model, held, said)
        gpu, either = self._gpu(held.gpu, said)
        per_node = None if held.n_gpus is None else held.n_gpus // held.n_nodes
        if per_node == 0:
            raise UsageError(f"--gpus must be at least --nodes, was {held.n_gpus}")
        return Asked(
            question=Question(
                model=model,
                gpu=gpu,
                engine=engine,
                place=Place(n_gpus=per_node, gpus_per_node=per_node, n_nodes=held.n_nodes),
                either=either,
                cards=self._cluster.cards,
                siblings=() if model is None else self._catalog.siblings(model.id),
                heads=held.heads,
                capability=_capability(held.capability),
                told=tuple(told),
            ),
            said=(*said, *_warned(engine, told)),
        )

    def _versioned(self, engine: EngineArgs, partition: str, said: list[str]) -> EngineArgs:
        """Return the engine with the site's version where it has none."""
        site = self._vllm.by_partition.get(partition, self._vllm.version)
        if engine.vllm_version is not None or site is None:
            return engine
        said.append(f"vLLM {site} by the site's settings")
        return replace(engine, vllm_version=site)

    def _model(self, name: str | None, held: Held, said: list[str]) -> ModelFacts | None:
        """Return the model; one that is not known is none where its heads were told."""
        if name is None:
            raise UsageError("no model is named", hint="give --model, or a whole vllm command")
        try:
            match = find_model(self._catalog, self._folders, name)
        except CatalogError as error:
            if held.heads is None and held.capability is None:
                raise
            said.append(str(error))
            return None
        if isinstance(match, Pending):
            raise CatalogError(f"model {name!r} did not answer in time", hint="is its disk there?")
        if match.said:
            said.append(match.said)
        return match.facts

    def _gpu(
        self, name: str | None, said: list[str]
    ) -> tuple[GpuFacts | None, tuple[GpuFacts, ...]]:
        """Return the card, of a pair `X + Y` what both have; or the cards that a name may mean."""
        if name is None:
            return None, ()
        parts = [part.strip() for part in name.split("+")]
        if len(parts) > 2:  # noqa: PLR2004 (a pair)
            raise UsageError(f"--gpu must be one card or a pair X + Y, was {name!r}")
        if len(parts) == 1:
            either = self._catalog.gpus_meant(name)
            if len(either) <= 1:
                return self._catalog.gpu(name), ()
            ids = " or ".join(card.id for card in either)
            said.append(f"{name} may be {ids}: only what holds for each is decided")
            return None, either
        said.append(f"{name}: the weaker card decides")
        return weaker(*map(self._catalog.gpu, parts)), ()

    def _is_card(self, name: str) -> bool:
        try:
            return bool(self._catalog.gpus_meant(name))
        except CatalogError:
            return False


def _warned(engine: EngineArgs, told: Sequence[Told]) -> list[str]:
    """Return what reading the options warned of, besides what is told as a check."""
    checked = {found.check.detail.text for found in told}
    return [f"warning: {text}" for text in engine.warnings if text not in checked]


def _told(problem: Problem) -> Told:
    """Return a problem of the command line as a check, with the option that is better left out."""
    check = outcome("options", CheckKind.FLAG, _EFFECTS[problem.effect], problem.text)
    named = problem.text.partition(":")[0]
    return Told(check, named if problem.kind in _LEFT_OUT and named.startswith("--") else "")


def _server(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the form of a server's command line and the words behind its launcher."""
    names = [Path(word).name for word in words]
    if "vllm" in names and names[names.index("vllm") + 1 : names.index("vllm") + 2] == ["serve"]:
        return "vllm serve", list(words[names.index("vllm") + 2 :])
    for module, form in _SERVER_MODULES.items():
        if module in words:
            return form, list(words[words.index(module) + 1 :])
    shown = " ".join(words[:3])
    raise UsageError(
        f"the command behind -- must start a server (vllm serve ..., python -m"
        f" vllm.entrypoints.openai.api_server ...), was {shown!r}"
    )


def _capability(text: str | None) -> int | None:
    if text is None:
        return None
    match = _CAPABILITY.fullmatch(text)
    if match is None:
        raise UsageError(f"--capability must be like 8.0, was {text!r}")
    return 10 * int(match[1]) + int(match[2])
