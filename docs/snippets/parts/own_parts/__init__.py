"""One part of each kind that a training recipe may replace."""
