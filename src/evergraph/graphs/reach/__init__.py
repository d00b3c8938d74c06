"""Who lies within L hops, how many they are, exactly and estimated."""
