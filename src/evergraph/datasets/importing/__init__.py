"""Import of tables of any size into a graph folder, in stages."""
