"""A learner in a folder: journal first, snapshots now and then, and the way back after a crash."""
