"""Read a Harbor task folder. Every fault is a sentence that names the file and the key.

``read_task`` raises ``SchemaError`` with all sentences. Unknown keys are warnings, because Harbor ignores them: a misspelled
key silently means its default.
"""

import re
import stat
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, get_args, get_origin

import msgspec

from palestra.errors import SchemaError, UsageError
from palestra.worlds.harbor.packs import is_pack, unpacked
from palestra.worlds.harbor.schema import Artifact, Config, Environment, StepConfig, Verifier, size_in_mb
from palestra.worlds.harbor.task import HarborStep, HarborTask, files_below

__all__ = ["find_tasks", "read_task"]

_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_STEP = re.compile(r'[^<>:"/\\|?*\x00-\x1f\x7f]+')
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_MOST_BYTES = 2**20


def find_tasks(folder: str | Path) -> list[Path]:
    """Return ``folder`` if it is a task, else the task folders directly below it, sorted by name; of a pack, all in it."""
    root = Path(folder)
    if is_pack(root):
        folders = sorted(path.parent for path in unpacked(root).rglob("task.toml"))
        if not folders:
            raise UsageError(f"{root} has no Harbor task: a task is a folder with a file task.toml")
        return [task for task in folders if not set(task.parents) & set(folders)]
    if not root.is_dir():
        raise UsageError(f"no folder {root}: name a Harbor task folder, a folder of them, or a pack (.tar, .tar.gz, .parquet)")
    if (root / "task.toml").is_file():
        return [root]
    folders = sorted(path.parent for path in root.glob("*/task.toml"))
    if not folders:
        raise UsageError(f"{root} is no Harbor task and has none below it: a task is a folder with a file task.toml")
    return folders


def read_task(folder: str | Path) -> HarborTask:
    """Return the task in ``folder``.

    Raises:
        SchemaError: The folder is not a valid task. Each line of the message names a file and a key.
    """
    root = Path(folder)
    raw = _table(root)
    config = _converted(root, raw)
    faults = [*_config_faults(config), *_folder_faults(root, config)]
    if faults:
        raise SchemaError("\n".join(f"{root.name}: {fault}" for fault in faults))
    named = config.task.name if config.task else root.resolve().name
    steps = tuple(_step(root, config, step) for step in config.steps or (None,))
    return HarborTask(folder=root, name=named, config=config, steps=steps, warnings=tuple(_unknown(raw, Config, "")))


def _table(root: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(root / "task.toml"))
    except FileNotFoundError:
        raise SchemaError(f"{root.name}: task.toml is missing") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SchemaError(f"{root.name}: task.toml cannot be read: {error}") from None


def _text(path: Path) -> str:
    """Return a regular text file. A link in a stranger's folder could name any file of this machine."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path.name} is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise OSError(f"{path.name} has {status.st_size} bytes; at most {_MOST_BYTES} are read")
    return path.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------------ task.toml


def _converted(root: Path, raw: dict[str, Any]) -> Config:
    environment = raw.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("os"), str):
        raw = {**raw, "environment": {**environment, "os": environment["os"].lower()}}
    try:
        return msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        what, _, key = str(error).partition(" - at `$")
        raise SchemaError(f"{root.name}: task.toml: {key.strip('`').lstrip('.') or 'the file'}: {_plain(what)}") from None


_TYPES = {"object": "table", "str": "text", "int": "whole number", "float": "number", "bool": "true or false", "array": "list"}


def _plain(what: str) -> str:
    """Return msgspec's sentence in the words of TOML."""
    what = re.sub(r"`(\w+)`", lambda match: _TYPES.get(match[1], f'"{match[1]}"'), what)
    what = what.replace("Object missing required field", "the table has no key").replace(" | null", " or nothing")
    return what[0].lower() + what[1:]


def _unknown(raw: Any, kind: Any, table: str) -> Iterator[str]:
    """Yield a sentence for every key that the type ``kind`` does not have."""
    struct = _struct_in(kind)
    if isinstance(raw, list):
        for number, item in enumerate(raw):
            yield from _unknown(item, kind, f"{table}[{number}]")
    elif isinstance(raw, dict) and struct is not None:
        types = {field.name: field.type for field in msgspec.structs.fields(struct)}
        for key, value in raw.items():
            path = f"{table}.{key}".lstrip(".")
            if key not in types:
                yield f"task.toml: {path}: Harbor has no such key, and ignores it"
            else:
                yield from _unknown(value, types[key], path)


def _struct_in(kind: Any) -> Any:
    """Return the table type inside an annotation such as ``tuple[str | Artifact, ...]``."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) is dict:
        return None
    return next((struct for part in get_args(kind) if (struct := _struct_in(part)) is not None), None)


def _config_faults(config: Config) -> Iterator[str]:
    if config.schema not in _VERSIONS:
        yield f'task.toml: schema_version: "{config.schema}" is not known; Palestra reads {_VERSIONS[0]} to {_VERSIONS[-1]}'
    if config.task and (not _NAME.fullmatch(config.task.name) or ".." in config.task.name):
        yield f'task.toml: task.name: "{config.task.name}" is not of the form "organization/name"'
    yield from _environment_faults(config.environment, "environment")
    yield from _verifier_faults(config.verifier, "verifier")
    yield from _network_faults(config.agent, "agent")
    yield from _artifact_faults(config.artifacts, "artifacts")
    seen: set[str] = set()
    for number, step in enumerate(config.steps):
        yield from _step_faults(step, f"steps[{number}]", seen)


def _step_faults(step: StepConfig, path: str, seen: set[str]) -> Iterator[str]:
    key = unicodedata.normalize("NFC", step.name).casefold()
    if not _STEP.fullmatch(step.name) or not step.name.strip() or step.name.endswith((".", " ")):
        yield f'task.toml: {path}.name: "{step.name}" is not the name of a folder'
    if key in seen:
        yield f'task.toml: {path}.name: there are two steps "{step.name}"'
    seen.add(key)
    yield from _verifier_faults(step.verifier, f"{path}.verifier")
    yield from _network_faults(step.agent, f"{path}.agent")
    yield from _artifact_faults(step.artifacts, f"{path}.artifacts")


def _environment_faults(table: Environment, key: str) -> Iterator[str]:
    yield from _network_faults(table, key)
    for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
        written, number = getattr(table, old), getattr(table, new)
        try:
            size = None if written is None else size_in_mb(written)
        except ValueError as error:
            yield f"task.toml: {key}.{old}: {error}"
            continue
        if size is not None and number is not None and size != number:
            yield f'task.toml: {key}.{old}: "{written}" is {size} MB, but {key}.{new} is {number}'
    for number, server in enumerate(table.mcp_servers):
        wanted = "command" if server.transport == "stdio" else "url"
        if not getattr(server, wanted):
            yield f"task.toml: {key}.mcp_servers[{number}].{wanted}: the transport {server.transport} needs it"


def _network_faults(table: Any, key: str) -> Iterator[str]:
    if (
        table.allowed_hosts is not None
        and table.network_mode != "allowlist"
        and (table.allowed_hosts or not table.network_mode)
    ):
        yield f'task.toml: {key}.allowed_hosts: hosts are allowed only with {key}.network_mode = "allowlist"'


def _verifier_faults(table: Verifier, key: str) -> Iterator[str]:
    yield from _network_faults(table, key)
    if table.environment is not None:
        yield from _environment_faults(table.environment, f"{key}.environment")
        if table.environment_mode == "shared":
            yield f'task.toml: {key}.environment_mode: "shared" contradicts [{key}.environment]'


def _artifact_faults(entries: tuple[str | Artifact, ...], key: str) -> Iterator[str]:
    for number, entry in enumerate(entries):
        artifact = entry if isinstance(entry, Artifact) else Artifact(source=entry)
        if not artifact.source or ".." in PurePosixPath(artifact.source).parts:
            yield f'task.toml: {key}[{number}].source: "{artifact.source}" must be a path without ".."'
        target = PurePosixPath(artifact.destination or "x")
        if target.is_absolute() or ".." in target.parts or "\\" in str(target) or str(target) == "manifest.json":
            yield f'task.toml: {key}[{number}].destination: "{artifact.destination}" must be a relative path without ".."'


# --------------------------------------------------------------------------------------------------------------------- files


def _folder_faults(root: Path, config: Config) -> Iterator[str]:
    environment = root / "environment"
    files = [name for name in ("Dockerfile", *_COMPOSE) if (environment / name).exists()]
    if not config.environment.docker_image and not files:
        yield "environment/Dockerfile is missing, and task.toml: environment.docker_image names no image"
    if not config.steps:
        yield from _instruction_faults(root, "instruction.md")
    for step in config.steps:
        yield from _instruction_faults(root, f"steps/{step.name}/instruction.md")
    for path, status in files_below(root):
        if stat.S_ISLNK(status.st_mode) and not _inside(root / path, root):
            yield f"{path} is a link that leads out of the task folder"
        elif not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            yield f"{path} is neither a file, a folder nor a link"
    if config.environment.os == "linux":
        yield from _test_faults(root, config)


def _inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def _instruction_faults(root: Path, path: str) -> Iterator[str]:
    try:
        if not _instruction(root / path).strip():
            yield f"{path} is empty"
    except FileNotFoundError:
        yield f"{path} is missing"
    except (OSError, UnicodeDecodeError) as error:
        yield f"{path} cannot be read: {error}"


def _test_faults(root: Path, config: Config) -> Iterator[str]:
    for step in config.steps or (None,):
        folder = root / "steps" / step.name if step else root
        if _mode(config, step) == "separate" and _verifier_image(root, config, step)[2]:
            continue
        if not any((above / "tests" / "test.sh").is_file() for above in (folder, root)):
            path = f"steps/{step.name}/tests/test.sh" if step else "tests/test.sh"
            yield f"{path} is missing: the task has no verifier"


def _instruction(path: Path) -> str:
    """Return the instruction without the canary lines at its beginning, which are not meant for agents."""
    lines = _text(path).split("\n")
    start = next((number for number, line in enumerate(lines) if not _CANARY.fullmatch(line.strip())), len(lines))
    return "\n".join(lines[start:]).lstrip("\n") if start else "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------------- steps


def _mode(config: Config, step: StepConfig | None) -> str:
    return (step.verifier.mode if step else None) or config.verifier.mode or "shared"


def _verifier_image(root: Path, config: Config, step: StepConfig | None) -> tuple[str | None, Path, bool]:
    """Return the finished image of a separate verifier, its context, and whether the image brings the tests along.

    An image or a Dockerfile of the step counts before one of the task; without any, the verifier has the agent's.
    """
    places = [(step.verifier.environment, root / "steps" / step.name / "tests")] if step else []
    for table, context in [*places, (config.verifier.environment, root / "tests")]:
        if table is not None and table.docker_image:
            return table.docker_image, context, True
        if any((context / name).is_file() for name in ("Dockerfile", "docker-compose.yaml")):
            return None, context, True
    return config.environment.docker_image, root / "environment", False


def _real(folder: Path) -> Path:
    """The folder that a link stands for. ``_folder_faults`` has found that it is in the task: what copies it follows none."""
    return folder.resolve() if folder.is_symlink() else folder


def _step(root: Path, config: Config, step: StepConfig | None) -> HarborStep:
    folder = root / "steps" / step.name if step else root
    settings = step or StepConfig(name="", agent=config.agent, verifier=config.verifier)
    image, context, bundled = _verifier_image(root, config, step)
    tests = dict.fromkeys(_real(above / "tests") for above in (root, folder) if (above / "tests").is_dir())
    solution = next(
        (_real(above / "solution") for above in (folder, root) if (above / "solution" / "solve.sh").is_file()), None
    )
    workdir = _real(folder / "workdir")
    verifier = settings.verifier.environment or config.verifier.environment
    entries = dict.fromkeys([*config.artifacts, *settings.artifacts])
    collect = (*config.verifier.collect, *step.verifier.collect) if step else config.verifier.collect
    return HarborStep(
        name=settings.name,
        instruction=_instruction(folder / "instruction.md"),
        tests=tuple(tests),
        solution=solution,
        workdir=workdir if step and workdir.is_dir() else None,
        agent=_merged(config.agent, settings.agent),
        verifier=msgspec.structs.replace(settings.verifier, collect=collect),
        separate=_mode(config, step) == "separate",
        verifier_env={**config.verifier.env, **settings.verifier.env},
        verifier_environment=msgspec.structs.replace(verifier or config.environment, docker_image=image),
        verifier_context=context,
        bundled_tests=bundled,
        artifacts=tuple(entry if isinstance(entry, Artifact) else Artifact(source=entry) for entry in entries),
        min_reward=settings.min_reward,
        healthcheck=settings.healthcheck,
    )


def _merged(task: Any, step: Any) -> Any:
    """Return the table of a step, with what it leaves out taken from the task's."""
    names = [field.name for field in msgspec.structs.fields(type(step))]
    return type(step)(**{name: getattr(task if getattr(step, name) is None else step, name) for name in names})
