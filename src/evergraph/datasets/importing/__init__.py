"""Tables of any size into a graph folder, stage by stage."""
