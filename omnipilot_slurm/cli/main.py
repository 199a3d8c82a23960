"""The `omnipilot` command: arguments in, a subcommand's output and an exit code out.

Subcommands are imported when they are called, from the table COMMANDS, so that a thin command
starts in the time that click needs and `--help` loads none of them. A subcommand returns its exit
code, or None for 0: 0 ok, 1 failed, 2 usage, 3 refused or does not start, 4 unsure or abstains.
Called by the console script, and by tests through `main(["sandbox", "status"])`.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING

import click

from omnipilot_slurm import __version__
from omnipilot_slurm.cli.lazy import LazyGroup, Subcommand
from omnipilot_slurm.errors import OmnipilotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: one line each, in alphabetical order
COMMANDS = {
    "adapt": Subcommand("omnipilot_slurm.cli.adapt:adapt", "The model corrected by own rows."),
    "advise": Subcommand("omnipilot_slurm.cli.advise:advise", "What sbatch would be answered."),
    "bench-plan": Subcommand(
        "omnipilot_slurm.cli.bench_plan:bench_plan", "What to measure to be sure."
    ),
    "collect": Subcommand("omnipilot_slurm.cli.collect:collect", "Watch a running server."),
    "config": Subcommand("omnipilot_slurm.cli.config:config", "Check or show the configuration."),
    "detect": Subcommand("omnipilot_slurm.cli.detect:detect", "What is read in a batch script."),
    "drift": Subcommand("omnipilot_slurm.cli.drift:drift", "Whether the model still holds."),
    "evaluate": Subcommand("omnipilot_slurm.cli.evaluate:evaluate", "How good the model is."),
    "explain": Subcommand("omnipilot_slurm.cli.explain:explain", "A decision again, in full."),
    "fit": Subcommand("omnipilot_slurm.cli.fit:fit", "Whether a server starts, and what would."),
    "ingest": Subcommand("omnipilot_slurm.cli.ingest:ingest", "Read accounting and benchmarks."),
    "predict": Subcommand("omnipilot_slurm.cli.predict:predict", "What rows of a CSV deliver."),
    "replay": Subcommand("omnipilot_slurm.cli.replay:replay", "What past jobs would be answered."),
    "probe": Subcommand("omnipilot_slurm.cli.probe:probe", "Benchmarks worth their GPU-hours."),
    "reload": Subcommand("omnipilot_slurm.cli.running_daemon:reload", "omnipilotd reads anew."),
    "report": Subcommand("omnipilot_slurm.cli.report:report", "Figures on model and decisions."),
    "sandbox": Subcommand("omnipilot_slurm.cli.sandbox:sandbox", "A throwaway Slurm to try it on."),
    "status": Subcommand("omnipilot_slurm.cli.running_daemon:status", "How omnipilotd is doing."),
    "train": Subcommand("omnipilot_slurm.cli.train:train", "Fit the cost model on measured rows."),
    "tune": Subcommand("omnipilot_slurm.cli.tune:tune", "Weights from what users chose."),
    "whatif": Subcommand("omnipilot_slurm.cli.whatif:whatif", "The answer with other figures."),
}

FAILED, USAGE, INTERRUPTED = 1, 2, 130


@click.group(
    cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="omnipilot")
def cli() -> None:
    """Tell whether the vLLM server of a batch job will start, what it will deliver, and where."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's own) and return its exit code."""
    try:
        code = cli.main(args=args, prog_name="omnipilot", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OmnipilotError as error:
        _complain(str(error), error.hint)
        return USAGE if isinstance(error, UsageError) else FAILED
    except BrokenPipeError:
        # the reader of our output left (`| head`): nothing is wrong, and nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except Exception as error:  # noqa: BLE001 the command line's one catch-all
        if os.environ.get("OMNIPILOT_DEBUG"):
            traceback.print_exc()
        _complain(
            f"unexpected {type(error).__name__}: {error}",
            "this is a defect of omnipilot; OMNIPILOT_DEBUG=1 shows where it happened",
        )
        return FAILED
    return code if isinstance(code, int) else 0


def _complain(message: str, hint: str) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
