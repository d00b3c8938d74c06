"""Floor 9: a learner behind HTTP. The only package that knows FastAPI."""
