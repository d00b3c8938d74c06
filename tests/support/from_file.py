"""A file imported as a module, whatever folder it lies in."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def module_of(path: Path, name: str = "") -> ModuleType:
    """Run a file as a module of its own, by the name of the file unless told."""
    spec = spec_from_file_location(name or path.stem, path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks up its annotations
    spec.loader.exec_module(module)
    return module
