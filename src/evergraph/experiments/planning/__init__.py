"""What a run will take on machines that are given, told before it starts."""
