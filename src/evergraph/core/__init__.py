"""Floor 0: errors, resolver, seeding, label space, device."""
