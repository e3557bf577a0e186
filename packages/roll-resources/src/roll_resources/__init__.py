"""Which worker gets which node and devices: a plan that prints, and its reservation on Ray."""
