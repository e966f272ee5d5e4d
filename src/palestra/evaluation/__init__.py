"""Trajectories → report: scores with error bars that mean what they say."""
