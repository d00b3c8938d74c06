"""The tables of a report, as records that every format is written from."""
