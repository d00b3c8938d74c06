"""The tables of a report, independent of their formats."""
