"""Generated Dockerfiles, built by a real Docker daemon and in the box: the file trees are the same.

Compared are paths, kinds, modes of files and folders, contents and targets of links. Not compared are owners, times, and
``IGNORED``: what docker or the kernel puts into every container. Here-documents and ``--chmod`` are left out, because Debian's
docker has no BuildKit; ``test_dockerfile`` and ``test_reading`` read them.
"""

import asyncio
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyseccomp")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.sandbox.docker_daemon import docker_daemon

from palestra.envs.harbor.building import build
from palestra.envs.harbor.env import limits_of
from palestra.envs.harbor.schema import Environment
from palestra.sandbox.roots import RootCache
from palestra.sandbox.shell import Shells

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

IMAGE = "palestra-builds"
IGNORED = frozenset({"dev", "proc", "sys", ".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"})
PROGRAMS = ("bash", "sh", "cat", "mkdir", "ln", "chmod", "mv", "cp", "rm", "env", "touch", "test")
CONTEXT = {
    "a.txt": (b"a\n", 0o644),
    "b.txt": (b"b\n", 0o600),
    "run.sh": (b"#!/bin/sh\necho run\n", 0o755),
    "with space.txt": (b"space\n", 0o644),
    "data/one.csv": (b"1,2\n", 0o644),
    "data/deep/two.csv": (b"3\n", 0o640),
    "data/deep/link": (b"", 0),
}
"""The files of the context, with their modes. The last one is a link to ``two.csv``."""


class Tree(NamedTuple):
    """A file tree: path → kind and mode, and content or target."""

    entries: dict[str, tuple[str, bytes]]


def is_ignored(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in IGNORED)


def kind_of(mode: int) -> str:
    # The mode of a link means nothing.
    return "link" if stat.S_ISLNK(mode) else f"{stat.filemode(mode)[0]}{stat.S_IMODE(mode):04o}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with a shell and a few programs, as an archive."""
    root = tmp_path_factory.mktemp("root")
    for name in ("etc", "tmp", "root", "proc", "dev", "sys", "usr/bin", "bin"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")
    programs = [shutil.which(name) or "" for name in PROGRAMS]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    libraries = {word for word in listed.split() if word.startswith("/") and not word.endswith(":")}
    for library in libraries:
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])
    for name, program in zip(PROGRAMS, programs, strict=True):
        shutil.copy(program, root / "bin" / name)
    (root / "usr/bin/env").symlink_to("/bin/env")
    made = root.parent / "root.tar"
    subprocess.run(["tar", "--owner=0", "--group=0", "-C", str(root), "-cf", str(made), "."], check=True)
    return made


@pytest.fixture(scope="module")
def daemon(archive: Path) -> Iterator[str]:
    """The address of a daemon that has the image."""
    with docker_daemon() as address:
        docker(address, "import", str(archive), IMAGE)
        yield address


@pytest.fixture(scope="module")
def cache(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> RootCache:
    made = RootCache(tmp_path_factory.mktemp("cache"))
    made.add_archive(IMAGE, archive)
    return made


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context")
    for name, (content, mode) in CONTEXT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode:
            path.write_bytes(content)
            path.chmod(mode)
        else:
            path.symlink_to("two.csv")
    return folder


def docker(daemon: str, *words: str) -> bytes:
    variables = {**os.environ, "DOCKER_HOST": daemon, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(["docker", *words], env=variables, capture_output=True, check=False)
    if done.returncode:
        pytest.fail(f"docker {' '.join(words)}: {(done.stdout + done.stderr).decode()[-1500:]}")
    return done.stdout


def tree_of_docker(daemon: str, context: Path) -> Tree:
    name = "palestra-built"
    docker(daemon, "build", "--quiet", "--network", "none", "-t", name, str(context))
    container = docker(daemon, "create", name, "true").decode().strip()
    exported = docker(daemon, "export", container)
    docker(daemon, "rm", container)
    docker(daemon, "rmi", name)
    found: dict[str, tuple[str, bytes]] = {}
    kinds = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.DIRTYPE: stat.S_IFDIR}
    with tarfile.open(fileobj=io.BytesIO(exported)) as archive:
        for member in archive:
            path = member.name.removeprefix("./").strip("/")
            if not path or is_ignored(path):
                continue
            if member.islnk():
                found[path] = found[member.linkname.removeprefix("./")]
                continue
            file = archive.extractfile(member) if member.isreg() else None
            content = file.read() if file else member.linkname.encode()
            found[path] = (kind_of(kinds.get(member.type, stat.S_IFREG) | member.mode), content)
    return Tree(found)


async def tree_of_box(cache: RootCache, context: Path) -> Tree:
    root, environment = cache.find(IMAGE), Environment()
    assert root is not None
    limits = limits_of(environment)
    built = await build(cache, context, environment, root, limits)
    layer = os.open(built.layer, os.O_RDONLY | os.O_DIRECTORY)
    try:
        async with Shells(limits, root=built.root, warm=0) as shells, await shells.open_from(layer) as shell:
            found: dict[str, tuple[str, bytes]] = {}
            for name, mode in shell.names_in(""):
                entries = [(one.path, one.mode, one.content) for one in shell.tree(name)] if stat.S_ISDIR(mode) else []
                if stat.S_ISLNK(mode) or stat.S_ISREG(mode):
                    entries = [(file.path, mode, file.content) for file in shell.copy_of(name)]
                else:
                    entries.append((name, mode, b""))
                for path, bits, content in entries:
                    if is_ignored(path):
                        continue
                    if stat.S_ISLNK(bits):
                        (link,) = shell.copy_of(path)
                        found[path] = (kind_of(bits), link.link.encode())
                    else:
                        found[path] = (kind_of(bits), content or b"")
            return Tree(found)
    finally:
        os.close(layer)


# ---------------------------------------------------------------------------------------------------------------- generating

names = st.sampled_from(["x", "y", "z", "sub", "out.txt"])
folders = st.sampled_from(
    ["/app", "/srv/data", "/opt/tool/", "sub", "./rel", "$HERE/in", "${UNSET:-/fallback}/w", "/app/../moved"]
)
targets = st.sampled_from(["./", "/app/", "/data/", "$HERE/files/", "new/deep/", "/linked/"])
names_of_files = st.sampled_from(["a.txt", "./b.txt", "run.sh", "/a.txt", "data/one.csv"])
values = st.sampled_from(
    ["plain", '"two words"', "'$HERE'", '"$HERE/x"', "${HERE}", "a\\ b", "${NONE:-d}", "${HERE:+set}", '""']
)
words = st.text("abc $*'\";|&", max_size=8)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


shell_commands = st.one_of(
    st.builds(lambda name, text: f"echo {quoted(text)} > {name}", names, words),
    st.builds(lambda name: f'echo "$HERE:$KEY:$PWD:${{ARGUMENT-}}" >> {name}.log', names),
    st.builds(
        lambda name: f"mkdir -p {name}.d/in \\\n  && touch {name}.d/in/file \\\n# a comment\n  && chmod 750 {name}.d", names
    ),
    st.builds(lambda name: f"ln -sf {name} link-{name}", names),
    st.builds(lambda name: f"rm -rf {name}.d && mkdir {name}.d && chmod 1777 {name}.d", names),
    st.just("rm -rf /app/data; mkdir -p /app; cp /bin/cat /app/tool; chmod 4755 /app/tool"),
    st.just("umask 077; touch closed; mkdir -p secret"),
    st.just("test -e first || (mv /etc/passwd first 2>/dev/null; true)"),
    st.just("true | cat; cd /tmp && touch in-tmp"),
)
instructions = st.one_of(
    st.builds(lambda path: f"WORKDIR {path}", folders),
    st.builds(lambda value: f"ENV KEY={value} OTHER=1", values),
    st.builds(lambda value: f"ENV HERE /from-old-form\nENV AGAIN={value}", values),
    st.builds(lambda value: f"ARG ARGUMENT={value}", st.sampled_from(["one", '"two"', "$HERE"])),
    st.builds(lambda name, target: f"COPY {name} {target}", names_of_files, targets),
    st.builds(lambda name, target: f"ADD {name} {target}", names_of_files, targets),
    st.builds(
        lambda name, to: f"COPY {name} {to}", names_of_files, st.sampled_from(["copied", "/app/named.txt", "deep/er/named"])
    ),
    st.builds(lambda target: f"COPY a.txt run.sh {target}", targets),
    st.builds(lambda target: f"COPY *.txt {target}", targets),
    st.builds(lambda target: f"COPY data {target}", targets),
    st.builds(lambda target: f"COPY data/ {target}", st.sampled_from(["whole", "/app/whole/"])),
    st.builds(lambda target: f"COPY --chown=root:root ./data/deep {target}", targets),
    st.just('COPY ["with space.txt", "/a folder/"]'),
    st.just("RUN mkdir -p /real && ln -sfn /real /linked"),
    st.builds(lambda command: f"RUN {command}", shell_commands),
    st.builds(lambda text: f"RUN {json.dumps(['/bin/sh', '-c', f'echo {quoted(text)} > exec-form'])}", words),
    st.sampled_from(["USER root", "LABEL a=b", 'CMD ["/bin/sh"]', "EXPOSE 80", "# a comment", "", "VOLUME /vol"]),
)
dockerfiles = st.lists(instructions, min_size=2, max_size=9).map(
    lambda lines: "\n".join([f"FROM {IMAGE}", "ENV HERE=/here", *lines]) + "\n"
)


def same_tree(daemon: str, cache: RootCache, context: Path, text: str) -> None:
    (context / "Dockerfile").write_text(text)
    expected = tree_of_docker(daemon, context).entries
    found = asyncio.run(tree_of_box(cache, context)).entries
    pairs = {path: (expected.get(path), found.get(path)) for path in sorted(expected.keys() | found.keys())}
    different = [f"{path}: docker {ours}, box {theirs}" for path, (ours, theirs) in pairs.items() if ours != theirs]
    if different:
        pytest.fail("\n".join([text, *different]))


checked = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a build takes a second: a smaller example would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@settings(checked, max_examples=8)
@given(text=dockerfiles)
def test_a_generated_dockerfile_builds_the_tree_of_docker(daemon: str, cache: RootCache, context: Path, text: str) -> None:
    same_tree(daemon, cache, context, text)


@pytest.mark.full
@settings(checked, max_examples=200)
@given(text=dockerfiles)
def test_two_hundred_generated_dockerfiles_build_the_tree_of_docker(
    daemon: str, cache: RootCache, context: Path, text: str
) -> None:
    same_tree(daemon, cache, context, text)
