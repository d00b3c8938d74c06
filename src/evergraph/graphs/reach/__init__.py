"""The nodes within L hops, and their number, exact and estimated."""
