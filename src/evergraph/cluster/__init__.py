"""Work on many processes or machines, through Ray."""
