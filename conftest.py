"""Which modules hold doctests: those that can be imported here."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/evergraph/graphs/kernels/triton_*.py"]
