"""The mathematics of training, as pure functions: advantages, losses, horizons, groups, and which samples are valid."""
