"""The pytest plugin of roll-dispatch."""
