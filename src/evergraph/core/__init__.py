"""Errors, component names, seeding, label space, devices and files."""
