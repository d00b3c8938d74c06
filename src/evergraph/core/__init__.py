"""Errors, resolver, seeding, label space, device."""
