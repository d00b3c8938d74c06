"""HTTP service around one learner. The only package that imports FastAPI."""
