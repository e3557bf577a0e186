"""One distributed role behind one object: clusters of workers, on Ray or in this process."""
