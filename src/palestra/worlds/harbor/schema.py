"""The keys of ``task.toml`` as frozen types: schema versions 1.0 to 1.4 of Harbor's task format.

Every default is Harbor's. Keys that Harbor has renamed (``version``, ``memory``, ``storage``, ``allow_internet``) are read
too, and properties return one value for the old and the new form. Unknown keys are ignored here and reported by the reader.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "Agent",
    "Artifact",
    "Collect",
    "Config",
    "Environment",
    "Healthcheck",
    "McpServerTable",
    "Network",
    "Package",
    "Solution",
    "StepConfig",
    "Verifier",
    "size_in_mb",
]

Network = Literal["public", "no-network", "allowlist"]
Seconds = Annotated[float, Meta(gt=0.0)]
Count = Annotated[int, Meta(ge=0)]
User = str | int


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """A person who wrote the task."""

    name: str
    email: str | None = None


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """``[task]``: what the task is called."""

    name: str
    """``organization/name``."""
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class Healthcheck(msgspec.Struct, frozen=True, kw_only=True):
    """``[environment.healthcheck]``: a command that succeeds when the services of the task are up."""

    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Meta(ge=0.0)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, Meta(ge=1)] = 3


class McpServerTable(msgspec.Struct, frozen=True, kw_only=True):
    """One of ``[[environment.mcp_servers]]``."""

    name: str
    transport: Literal["sse", "streamable-http", "http", "stdio"] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """``[environment]``, and ``[verifier.environment]`` of a separate verifier."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: Annotated[float, Meta(gt=0.0)] | None = None
    memory_mb: Annotated[int, Meta(ge=1)] | None = None
    storage_mb: Annotated[int, Meta(ge=1)] | None = None
    gpus: Count | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables; ``${NAME}`` and ``${NAME:-default}`` stand for those of the host."""
    workdir: str | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] | None = None
    mcp_servers: tuple[McpServerTable, ...] = ()
    healthcheck: Healthcheck | None = None
    skills_dir: str | None = None
    memory: str | None = None
    """Old form of ``memory_mb``: ``2G``."""
    storage: str | None = None
    allow_internet: bool | None = None
    """Old form of ``network_mode``."""

    @property
    def network(self) -> Network:
        """Whether the task may use a network; ``public`` by default."""
        if self.network_mode is not None:
            return self.network_mode
        return "no-network" if self.allow_internet is False else "public"

    @property
    def memory_in_mb(self) -> int | None:
        """Memory in MiB, from either form."""
        return self.memory_mb if self.memory is None else size_in_mb(self.memory)

    @property
    def storage_in_mb(self) -> int | None:
        """Disk space in MiB, from either form."""
        return self.storage_mb if self.storage is None else size_in_mb(self.storage)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """``[agent]``: how long the agent may work, and as whom."""

    timeout_sec: Seconds | None = None
    user: User | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] | None = None


class Collect(msgspec.Struct, frozen=True, kw_only=True):
    """One of ``[[verifier.collect]]``: a command in the agent's environment before a separate verifier starts."""

    command: str
    timeout_sec: Seconds = 60.0
    user: User | None = None
    service: str = "main"


class Verifier(msgspec.Struct, frozen=True, kw_only=True):
    """``[verifier]``: how the result is graded."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = msgspec.field(default_factory=dict)
    user: User | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()

    @property
    def mode(self) -> Literal["shared", "separate"] | None:
        """Where the verifier runs, as far as this table says it: in the agent's box, or in one of its own."""
        if self.environment_mode is None and self.environment is not None:
            return "separate"
        return self.environment_mode


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """``[solution]``: variables for ``solve.sh``."""

    env: dict[str, str] = msgspec.field(default_factory=dict)


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder that outlives the agent's environment."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


class StepConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One of ``[[steps]]``, in a folder of its name below ``steps/``."""

    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    """The task ends after this step if the reward is lower."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    schema_version: str | None = None
    version: str | None = None
    """Old form of ``schema_version``."""
    task: Package | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    solution: Solution = Solution()
    artifacts: tuple[str | Artifact, ...] = ()
    steps: tuple[StepConfig, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    source: str | None = None

    @property
    def schema(self) -> str:
        """The version of the schema, from either key; the newest if there is none."""
        return self.schema_version or self.version or "1.4"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG])", re.IGNORECASE)
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024}


def size_in_mb(text: str) -> int:
    """Return a size such as ``2G`` or ``512M`` in MiB; raise ``ValueError`` if it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a size: write a number and K, M or G, such as "2G"')
    return int(float(match[1]) * _UNITS[match[2].upper()])
