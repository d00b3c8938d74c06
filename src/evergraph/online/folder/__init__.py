"""A durable learner in a folder: write-ahead journal, snapshots, recovery after a crash."""
