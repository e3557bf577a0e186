"""Training and reinforcement-learning pipelines: configuration, launcher, SFT, RLVR and more."""
