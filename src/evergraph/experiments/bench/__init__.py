"""Benchmarks: methods x datasets x settings x seeds, in parallel processes."""
