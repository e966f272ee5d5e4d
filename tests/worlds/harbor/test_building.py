"""What a Dockerfile builds in the box: paths, modes and contents as Docker documents them."""

from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.harbor.folders import write
from tests.worlds.harbor.test_playing import opened

from palestra.worlds.harbor.env import Harbor

DOCKERFILE = """FROM debian:12
ENV HERE=/app/in KEY="two words"
ARG ARGUMENT=one
WORKDIR ${UNSET:-/app}
COPY a.txt ./
COPY ./run.sh named
COPY *.txt deep/er/
COPY data data/ $HERE/
COPY --chown=root:root data/deep /app/deep
ADD ["with space.txt", "/app/a folder/"]
WORKDIR sub
ENV HERE /app/old form
RUN echo "$HERE:$KEY:$PWD:$ARGUMENT" > seen; umask 027; touch closed \\
# a comment
  && mkdir secret
RUN ["/bin/sh", "-c", "echo '$HERE' > exec-form"]
RUN cd /app && ln -sfn sub linked && mkdir -m 1777 open && cp /bin/cat tool && chmod 4755 tool
COPY a.txt /app/linked/
RUN rm -rf /app/in/deep
WORKDIR /app/linked/../moved
"""
CONTEXT = {
    "a.txt": ("a\n", 0o644),
    "b.txt": ("b\n", 0o600),
    "run.sh": ("#!/bin/sh\n", 0o755),
    "with space.txt": ("space\n", 0o644),
    "data/one.csv": ("1,2\n", 0o644),
    "data/deep/three.txt": ("3\n", 0o644),
    "data/deep/two.csv": ("2\n", 0o640),
}
TREE = """/app/moved
drwxr-xr-x
drwxr-xr-x a folder
-rw-r--r-- a folder/with space.txt
-rw-r--r-- a.txt
drwxr-xr-x deep
drwxr-xr-x deep/er
-rw-r--r-- deep/er/a.txt
-rw------- deep/er/b.txt
-rw-r--r-- deep/er/with space.txt
lrwxrwxrwx deep/link -> two.csv
-rw-r--r-- deep/three.txt
-rw-r----- deep/two.csv
drwxr-xr-x in
-rw-r--r-- in/one.csv
lrwxrwxrwx linked -> sub
drwxr-xr-x moved
-rwxr-xr-x named
drwxrwxrwt open
drwxr-xr-x sub
-rw-r--r-- sub/a.txt
-rw-r----- sub/closed
-rw-r--r-- sub/exec-form
drwxr-x--- sub/secret
-rw-r--r-- sub/seen
-rwsr-xr-x tool
/app/old form:two words:/app/sub:one
$HERE"""
LIST = "find . -printf '%P\t%M %P -> %l\n' | LC_ALL=C sort | cut -f 2 | sed 's/ *-> $//'"


async def test_a_dockerfile_builds_the_tree_that_docker_builds(tmp_path: Path, made: list[Harbor]) -> None:
    folder = write(tmp_path / "task", {"environment/Dockerfile": DOCKERFILE})
    for name, (content, mode) in CONTEXT.items():
        path = folder / "environment" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)
    (folder / "environment/data/deep/link").symlink_to("two.csv")
    env = opened(made, folder)
    await env.reset(seed=0)
    shown = await env.step(f"```bash\npwd; cd /app; {LIST}; cat sub/seen sub/exec-form\n```")
    assert shown.observation == TREE
