"""How a call's arguments are split over workers and its results joined."""
