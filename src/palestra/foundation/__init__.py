"""Ground that knows nothing of episodes: seeds, bytes, references, secrets, telemetry, statistics, child processes."""
