r"""``palestra play``: play an environment yourself, in the terminal.

What you type is the action. If the first observation mentions ``\boxed``, the command puts your line into ``\boxed{…}`` and
shows what it sent. A line that begins with ``/`` is then sent unchanged, without the slash: use it for text that is not an
answer. If the first observation asks for a block of bash, your line becomes such a block. A move that the environment cannot
parse is taken back instead of ending the game. With ``--tool`` you can call a tool as an agent does:
``<python>1 + 1</python>`` runs in the sandbox.
"""

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import typer

from palestra.adapters import Guarded
from palestra.cli.options import ID, WRAPPERS, seed_option
from palestra.core import Step
from palestra.errors import InfrastructureError, Unsupported
from palestra.foundation.terminal import terminal_safe
from palestra.registry import make, typed
from palestra.rollouts import RolloutOptions
from palestra.tools import CallForm, find_calls
from palestra.trajectory import text_of

__all__ = ["play_command"]

CONNECT_SECONDS = 5.0
"""Seconds that a server may take to accept a connection."""


def play_command(
    id: str = ID,
    seed: int | None = seed_option("Seed of the task to play; random by default.", None),
    tool: list[str] = typer.Option(
        [], metavar="NAME", help="A tool for you to use: python, search?index=FOLDER, or module:name. May be repeated."
    ),
    wrapper: list[str] = WRAPPERS,
) -> None:
    r"""Play an environment yourself. `?` shows what a perfect player would do; Ctrl-D quits.

    If the rules ask for `\boxed{…}`, the command writes your line as `\boxed{your line}`. `/TEXT` sends TEXT as it is.
    If they ask for a block of bash, your line becomes one.
    """
    typed([id, *tool, *wrapper])
    _try_server(id)
    with make(id, wrappers=RolloutOptions(wrappers=wrapper, tools=tool).around()) as env:
        observation, _ = env.reset(seed=seed)
        first = text_of(observation)
        typer.secho(f"{id}, seed {env.task.seed}\n", dim=True)
        form = _form_of(first)
        typer.secho(_how_to_play(form), dim=True)
        try:
            _play(env, first, form)
        except (EOFError, KeyboardInterrupt):
            typer.secho("\nYou left the game.", dim=True)


def _try_server(id: str) -> None:
    """Fail within seconds if no server answers; a rollout would wait for the server."""
    scheme, _, address = id.partition(":")
    if scheme != "remote":
        return
    url = urlsplit(address.partition("#")[0])
    port = url.port or (443 if url.scheme in ("https", "wss") else 80)
    try:
        socket.create_connection((url.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise InfrastructureError(f"no server answers at {url.hostname}:{port}: {error}") from None


_BOXED, _BASH = "\\boxed", "```bash"


def _form_of(rules: str) -> str:
    """Return how the rules want an action to be written: ``_BOXED``, ``_BASH``, or nothing special."""
    return next((form for form in (_BOXED, _BASH) if form in rules), "")


def _how_to_play(form: str) -> str:
    sent = {_BOXED: "What you type is sent as \\boxed{…}; /TEXT sends TEXT as it is. ", _BASH: "What you type is run by bash. "}
    return f"Type an action and press Enter. {sent.get(form, '')}? shows what a perfect player would do, Ctrl-D leaves.\n"


def _play(env: Guarded, shown: str, form: str) -> None:
    total = 0.0
    sent: list[str] = []
    while True:
        typer.echo(terminal_safe(shown))
        action = _ask(env, len(sent) + 1, form)
        step = env.step(action)
        if step.terminated and step.info.get("format_error"):
            typer.secho(
                f"{terminal_safe(text_of(step.observation))}\nThe move was taken back. Try again.", fg=typer.colors.YELLOW
            )
            shown = _go_back(env, sent)
            continue
        sent.append(action)
        total += step.reward
        shown = text_of(step.observation)
        if step.reward:
            typer.secho(f"reward {step.reward:+.2f}", fg=typer.colors.YELLOW)
        if step.terminated or step.truncated:
            break
    typer.echo(terminal_safe(shown))
    _say_how_it_ended(step, len(sent), total)


def _say_how_it_ended(step: Step, turns: int, total: float) -> None:
    won = step.info.get("success")
    colour = typer.colors.GREEN if won else typer.colors.RED if won is not None else None
    verdict = "" if won is None else "solved, " if won else "not solved, "
    typer.secho(f"\n{verdict}{turns} {'turn' if turns == 1 else 'turns'}, total reward {total:.2f}", fg=colour, bold=True)


def _go_back(env: Guarded, sent: Sequence[str]) -> str:
    """Reset the same task and repeat the actions ``sent``, so that a typing error does not end the game."""
    observation, _ = env.reset(task=env.task)
    for action in sent:
        observation = env.step(action).observation
    return text_of(observation)


def _ask(env: Guarded, turn: int, form: str) -> str:
    while True:
        line = input(f"\n[{turn}] > ")
        if line.strip() != "?":
            break
        try:
            typer.secho(f"perfect player: {terminal_safe(env.oracle())}", fg=typer.colors.CYAN)
        except Unsupported as error:
            typer.secho(terminal_safe(str(error)), dim=True)
    if not form or form in line:
        return line
    if form == _BASH:  # before calls are looked for: a command may contain what looks like one
        return f"{_BASH}\n{line}\n```"
    if find_calls(line, tuple(CallForm)):
        return line
    if line.startswith("/"):
        return line[1:]
    boxed = f"\\boxed{{{line.strip()}}}"
    typer.secho(f"sent {boxed}", dim=True)
    return boxed
