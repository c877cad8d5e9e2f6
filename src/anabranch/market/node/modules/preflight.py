"""What must be right before a module is started: its executable, its folders, its port, its layers.

Raises `InputError` with the name of the setting and a code; nothing has been started by then.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from anabranch.errors import InputError
from anabranch.market.node.modules.config import ModuleConfig, loopback_address
from anabranch.market.node.modules.layers import read_layers


class ModuleFolders:
    """Where a module has its things, below the data folder of the node."""

    def __init__(self, data_dir: Path, config: ModuleConfig) -> None:
        self.home = data_dir / "middleware" / config.module
        self.output = self.home / "output"
        self.log = self.home / "module.log"
        self.node_config = data_dir / "config"
        self.module_config = _module_dir(config, self.home) / "config"


def preflight(config: ModuleConfig, folders: ModuleFolders) -> Path:
    """The executable. Blocks as long as the disk does."""
    _make_folder(folders.home)
    _make_folder(folders.output)
    cwd = config.launch.cwd
    if cwd and not os.path.isdir(cwd):
        raise InputError(f"launch.cwd: there is no folder {cwd}", code="preflight_folder")
    read_layers((folders.module_config, folders.node_config))
    return _executable(config)


def port_is_free(config: ModuleConfig) -> bool:
    """Whether the module could listen on its endpoint now."""
    host, port = loopback_address(config.http.endpoint)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _module_dir(config: ModuleConfig, home: Path) -> Path:
    """What is set, or the folder it runs in, or that of its executable."""
    if config.module_dir or config.launch.cwd:
        return Path(config.module_dir or config.launch.cwd).absolute()
    executable = config.launch.executable
    return Path(executable).absolute().parent if "/" in executable else home


def _executable(config: ModuleConfig) -> Path:
    named = config.launch.executable
    if "/" in named:
        path = Path(config.launch.cwd or ".", named).absolute()
        found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
    else:
        found = shutil.which(named)
    if found is None:
        raise InputError(
            f"launch.executable: {named} is not an executable file", code="preflight_executable"
        )
    return Path(found)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_symlink() or not os.access(path, os.W_OK | os.X_OK):
            raise OSError(0, "it is a link, or not writable")
    except OSError as error:
        raise InputError(
            f"cannot use the folder {path}: {error.strerror}", code="preflight_folder"
        ) from None
