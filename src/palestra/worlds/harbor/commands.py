"""``palestra harbor``: check, build, write and export Harbor tasks."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import typer

from palestra.authoring.commands import JSON, show, tell
from palestra.errors import EpisodeError, SchemaError, Unsupported, UsageError
from palestra.sandbox.roots import RootCache
from palestra.worlds.harbor.building import build
from palestra.worlds.harbor.check import CheckSettings, TaskReport, check_tasks
from palestra.worlds.harbor.classes import HOST, classify, environment_reasons, recipe_of
from palestra.worlds.harbor.env import harbor_cache, limits_of
from palestra.worlds.harbor.export import IMAGE, export_tasks
from palestra.worlds.harbor.packs import pack_tasks
from palestra.worlds.harbor.preparing import container_program, prepare
from palestra.worlds.harbor.reading import find_tasks, read_task
from palestra.worlds.harbor.scaffold import new_task
from palestra.worlds.harbor.task import HarborTask
from palestra.worlds.harbor.users import has_users

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)


@app.command("check")
def check_command(
    folder: Path = typer.Argument(..., help="A task folder, a folder of them, or a pack."),
    host: bool = typer.Option(False, "--host", help="Use this machine's /usr in place of every image."),
    clean: bool = typer.Option(
        False, "--clean", help="Run shared verifiers in a fresh box with the agent's working folder alone."
    ),
    hacks: bool = typer.Option(False, "--hacks", help="Also attack each verifier."),
    jobs: int = typer.Option(8, min=1, max=64, help="Number of tasks to check at a time."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON report per line."),
) -> None:
    """Check that tasks read, build and grade, that their solutions solve them, and that doing nothing does not.

    The exit code is 1 if a check failed. A hole of a shared verifier is reported and does not change the exit code.
    """
    settings = CheckSettings(base=HOST if host else "", verifier="clean" if clean else "", hacks=hacks, jobs=jobs)
    reports = asyncio.run(check_tasks(find_tasks(folder), settings))
    for report in reports:
        if as_json:
            typer.echo(msgspec.json.encode({**msgspec.to_builtins(report), "ok": report.ok}).decode())
        else:
            tell(_row(report))
            for line in _details(report):
                tell(f"    {line}")
    if not as_json:
        typer.echo(_summary(reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _row(report: TaskReport) -> str:
    shown = {"solution": report.oracle, "nothing": report.nop}
    scores = " ".join(f"{name} {'-' if value is None else f'{value:g}'}" for name, value in shown.items())
    run = all(finding.status != "not run" or finding.check != "class" for finding in report.findings)
    verdict = "FAILED" if not report.ok else "ok" if run else "not run"
    return (
        f"{report.task:<32} class {report.kind or '-'}  {scores}  {report.seconds:.1f} s  {report.megabytes:.1f} MB  {verdict}"
    )


def _details(report: TaskReport) -> list[str]:
    order = ("fail", "hole", "not run", "note")
    shown = sorted(
        (finding for finding in report.findings if finding.status in order), key=lambda finding: order.index(finding.status)
    )
    return [f"{finding.status}: {finding.check}: {finding.detail}" for finding in shown]


def _summary(reports: list[TaskReport]) -> str:
    kinds = Counter(report.kind for report in reports)
    classes = ", ".join(f"{count} of class {kind}" if kind else f"{count} unreadable" for kind, count in sorted(kinds.items()))
    failed = sum(not report.ok for report in reports)
    holes = sum(finding.status == "hole" for report in reports for finding in report.findings)
    return f"{len(reports)} tasks ({classes}): {failed} failed, {holes} holes"


@app.command("new")
def new_command(
    folder: Path = typer.Argument(..., help="The folder to create. Its name is the name of the task."),
    organization: str = typer.Option("local", help="The first part of the task's full name."),
    as_json: bool = JSON,
) -> None:
    """Write a small task that works, to start from, and print its folder."""
    made = new_task(folder, organization)
    show(as_json, {"folder": str(made)}, str(made))


@app.command("export")
def export_command(
    env: str = typer.Argument(..., metavar="ID", help="A terminal environment, such as terminal:text-v0-easy."),
    folder: Path = typer.Argument(..., help="The folder that gets one folder per task."),
    count: int = typer.Option(20, "-n", min=1, help="Number of tasks."),
    seed: int = typer.Option(0, help="The seed of the first task; the following tasks have the next ones."),
    image: str = typer.Option(IMAGE, help="The image of the tasks. It needs bash, Python and the programs of the family."),
    as_json: bool = JSON,
) -> None:
    """Write terminal tasks as Harbor folders. Their verifiers grade as the environment does, and need no Palestra."""
    made = [str(task) for task in export_tasks(env, folder, range(seed, seed + count), image)]
    show(as_json, {"folders": made}, "\n".join(made))


@app.command("pack")
def pack_command(
    folder: Path = typer.Argument(..., help="A task folder, a folder of them, or a pack."),
    pack: Path = typer.Argument(..., help="The file to create: .tar, .tar.gz or .parquet."),
    as_json: bool = JSON,
) -> None:
    """Write tasks into one file, which harbor:FILE#task plays, and which every other command takes in place of a folder."""
    tasks = find_tasks(folder)
    pack_tasks(tasks, pack)
    show(as_json, {"pack": str(pack), "tasks": len(tasks)}, f"{pack}: {len(tasks)} tasks")


@app.command("build")
def build_command(
    folder: Path | None = typer.Argument(None, help="A task folder, a folder of them, or a pack."),
    image: list[str] = typer.Option(
        [], help="NAME=ARCHIVE: unpack the archive (docker save, OCI, docker export) as the image."
    ),
    debian: list[str] = typer.Option([], help="NAME=SUITE: make the image with mmdebstrap, which needs a network."),
    package: list[str] = typer.Option([], help="A Debian package for --debian. May be repeated."),
    host: list[str] = typer.Option([], help="NAME: let the image mean this machine's /usr."),
    trust: bool = typer.Option(False, "--trust", help="Build tasks of class 2 with docker or podman, with a network."),
    as_json: bool = JSON,
) -> None:
    """Give images a root file system, and build the environments of tasks, so that episodes start at once.

    Dockerfiles run in a box without network. --trust lets docker or podman run them with a network, outside of the box.
    """
    cache = harbor_cache()
    say = _nothing if as_json else tell
    for text in host:
        cache.use_host(text)
        say(f"{text}: this machine's /usr")
    images = {}
    for text in image:
        name, archive = _pair(text, "--image")
        say(f"{name}: unpacking {archive}")
        images[name] = cache.add_archive(name, Path(archive))
        say(f"{name}: {images[name][:12]}")
    for text in debian:
        name, suite = _pair(text, "--debian")
        say(f"{name}: mmdebstrap {suite}, which takes a few minutes")
        images[name] = cache.add_debian(name, suite, package)
        say(f"{name}: {images[name][:12]}")
    tasks, failed = [], 0
    for path in find_tasks(folder) if folder else ():
        try:
            line, ready = _build_task(cache, read_task(path), trust, say)
        except SchemaError as error:
            line, ready = str(error), False
        say(line)
        tasks.append({"task": str(path), "ready": ready, "about": line})
        if not ready:
            failed += 1
    if as_json:
        show(True, {"images": images, "tasks": tasks}, "")
    if failed:
        raise typer.Exit(1)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise UsageError(f'{option} "{text}": write NAME=VALUE, such as debian:12=root.tar')
    return name, value


def _nothing(line: str) -> None:
    """Print nothing: the output is one JSON document."""


def _build_task(cache: RootCache, task: HarborTask, trust: bool, say: Callable[[str], None]) -> tuple[str, bool]:
    """Build the environments of the agent and of separate verifiers. Return a line about it, and whether all are built."""
    placement = classify(task, cache.images(), cache.find)
    made = []
    try:
        if placement.kind == 2 and trust:
            environments = task.environments.values()
            unready = [pair for pair in environments if environment_reasons(*pair, cache.images())]
            program = container_program()
            for context, environment in unready:
                say(f"{task.name}: {Path(program).name} builds {context.name}")
                made.append(prepare(cache, context, environment, program)[:12])
            placement = classify(task, cache.images(), cache.find)
        if placement.kind > 1:
            return f"{task.name}: class {placement.kind}: {placement.because}", False
        for identity, (context, environment) in task.environments.items():
            root = cache.find(recipe_of(context, environment).image)
            if root is not None and cache.find(identity) is None:  # else docker has built it
                recipe = recipe_of(context, environment, root)
                say(f"{task.name}: {context.name}, {len(recipe.steps)} steps in a box")
                users = has_users(task, recipe)
                asyncio.run(build(cache, context, environment, root, limits_of(environment), users=users))
    except (EpisodeError, Unsupported) as error:
        return f"{task.name}: {error}", False
    return f"{task.name}: {' '.join(made) or 'built'}", True
