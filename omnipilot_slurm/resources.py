"""Where the files that ship with the package are: etc/, lua/ and the cost model.

In: the name of a file. Out: its path, or its bytes as layers for strict_yaml, the site's own file
in /etc/omnipilot over the shipped one. In a wheel they lie in omnipilot_slurm/_data/, in a
checkout in its top-level folders. Called by whatever loads a configuration.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ConfigError, Fault
from omnipilot_slurm.strict_yaml import Layer
from omnipilot_slurm.yaml_tree import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

SITE_FOLDER = Path("/etc/omnipilot")


def shipped_path(folder: str, *parts: str) -> Path:
    """Return the path of a shipped file: `shipped_path("lua", "omnipilot.lua")`."""
    package = Path(str(files("omnipilot_slurm")))
    packaged = package.joinpath("_data", folder, *parts)
    return packaged if packaged.exists() else package.parent.joinpath(folder, *parts)


def etc_layers(name: str, *, site: Path | None = SITE_FOLDER) -> list[Layer]:
    """Return the shipped etc/<name> and, where the site has one, its own file over it.

    Raises: ConfigError when a file that is there cannot be read.
    """
    return layers_over(name, [] if site is None else [site])


def layers_over(name: str, folders: Iterable[Path]) -> list[Layer]:
    """Return the shipped etc/<name> and, over it, that of each folder which has one.

    Raises: ConfigError when a file that is there cannot be read.
    """
    own = (folder / name for folder in folders)
    return read_layers([shipped_path("etc", name), *(path for path in own if path.exists())])


def read_layers(paths: Iterable[Path]) -> list[Layer]:
    """Read files as layers, lowest first; at most one byte more than a layer may have.

    Raises: ConfigError when one cannot be read.
    """
    layers = []
    for path in paths:
        try:
            with path.open("rb") as stream:
                layers.append(Layer(file=str(path), data=stream.read(MAX_BYTES + 1)))
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            fault = Fault(file=str(path), line=1, column=1, message=message)
            raise ConfigError([fault]) from error
    return layers
