"""Wait until the services of a task are up, as its health check says."""

import asyncio
import time

from palestra.envs.harbor.schema import Healthcheck
from palestra.errors import EnvError
from palestra.sandbox.shell_session import ShellSession

__all__ = ["wait_until_healthy"]


async def wait_until_healthy(shell: ShellSession, check: Healthcheck) -> None:
    """Run the command of ``check`` until it succeeds. Failures within the start period do not count.

    Raises:
        EnvError: It has failed as often as the check allows.
    """
    began, failures = time.monotonic(), 0
    while True:
        outcome = await shell.run(f"( {check.command}\n) < /dev/null", wall_seconds=check.timeout_sec)
        if outcome.running:
            await shell.interrupt()
        elif outcome.exit_code == 0:
            return
        starting = time.monotonic() - began < check.start_period_sec
        failures += not starting
        if failures >= check.retries or not shell.alive:
            raise EnvError(f"the services of the task are not healthy: {check.command}: {outcome.text.strip()[-300:]}")
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)
