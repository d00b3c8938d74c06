"""Floor 9: the command line, the only place that knows typer and prints."""
