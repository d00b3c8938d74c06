"""Typed configurations, the runner, the results folder and the presets."""
