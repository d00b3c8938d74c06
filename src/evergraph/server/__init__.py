"""A learner behind HTTP. The only package that knows FastAPI."""
