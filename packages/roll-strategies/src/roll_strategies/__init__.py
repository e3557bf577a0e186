"""Train, score and generate with one engine behind one interface, and move weights between engines."""
