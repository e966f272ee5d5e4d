"""ScienceWorld at full size: gold paths, 64 episodes at once, a killed Java process, determinism, hostile actions, cost.

CPU time is that of Python and Java together, on both sides of a ratio. The bare library is ``ScienceWorldEnv``. The whole takes
about 40 minutes of CPU time, half of it for the gold paths of genetics. ``--quick`` plays ten gold paths, two episodes at once
and 80 actions, about 15 s of CPU time. It leaves out what needs more Java processes, or one that is warm: determinism, floors
and cost.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from mishaps import mishaps
from rows import Row, interleaved
from science_floors import floor_rows
from tests.suite.same_everywhere import different_hashes

import palestra
from palestra.adapters import Guarded
from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Conversation
from palestra.foundation.statistics import Score, mean_interval
from palestra.registry import make
from palestra.trajectory import Task, text_of
from palestra.worlds.science.gold import read_gold, shipped_paths
from palestra.worlds.science.jvm import JAVA_OPTIONS
from palestra.worlds.science.panels import every_task
from palestra.worlds.science.pool import MOST, SEATS, shared_pool
from palestra.worlds.science.tasks import TASKS, Game

__all__ = ["rows"]

IDS = ("science:find-animal-test", "science:lifespan-longest-lived-test", "science:chemistry-mix-paint-secondary-color-test")
TEXTS = [*SHORT.values(), *(grow(300) for grow in GROWING.values()), "Action: 0", "Action: reset task", "Action: look in (.)"]
TURNS = 20
"""Turns of the episodes that are played alone and beside others."""
CLOCK = os.sysconf("SC_CLK_TCK")
COMPARED = (
    "science: what the limit of 1.3 holds for: the same actions, in the library as it is used (ScienceWorldEnv.step) and, like",
    "science: with like, by the three calls that a step needs in a Java process with the same options. A Java process without",
    "science: -XX:hashCode=2 is faster, but its texts vary from run to run, so that ratio has no limit: it is the price.",
)


def rows(quick: bool) -> list[Row]:
    """The rows of this world. Each is also printed when it is known, because the whole takes long."""
    small: list[Callable[[], list[Row]]] = [
        lambda: gold_rows(["lifespan-longest-lived"]),
        lambda: crowd_rows(2),
        lambda: random_rows(40),
        lambda: hostile_rows(40),
    ]
    whole: list[Callable[[], list[Row]]] = [
        cost_rows,
        lambda: gold_rows(list(TASKS)),
        lambda: crowd_rows(MOST * SEATS),
        lambda: [Row("different sha256 of the same episodes, each worker with a Java process", same_everywhere(), "<= 1")],
        lambda: [Row("episodes that differ when they take turns in a Java process", disturbed(16), "<= 0")],
        lambda: floor_rows(list(TASKS), 10),
        lambda: random_rows(10_000),
        lambda: hostile_rows(10_000),
    ]
    found = []
    for part in small if quick else whole:
        for row in part():
            print(f"science: {row.what}: {row.value:.4g}", flush=True)
            found.append(row)
    return found


def game_of(task: Task, group: str) -> Game:
    """The game of a task of the panel ``science``."""
    name = group.partition("/")[2]
    return Game(name, TASKS[name].split(task.env.rpartition("-")[2])[task.index or 0])


# ------------------------------------------------------------------------------------------------------------- gold paths


def gold_rows(names: list[str]) -> list[Row]:
    """Ten games of each task by the oracle. Games without a path, or whose path does not solve them, are named."""
    gold, played, lost = read_gold(), 0, []
    missing: Counter[str] = Counter()
    for task, group in every_task():
        game = game_of(task, group)
        if game.task not in names:
            continue
        played += 1
        if game in gold.short:
            lost.append(f"{game.task} {game.variation}")
        elif game not in gold.paths:
            missing[game.task] += 1
        elif not solves(task):
            lost.append(f"{game.task} {game.variation}")
    for name, count in missing.items():
        print(f"science: the gold paths of {count} of 10 games of {name} have not been computed")
    print(*(f"science: its gold path does not solve {one}" for one in lost), sep="\n", end="\n" if lost else "")
    solved, known = played - len(lost) - missing.total(), sum(game.task in names for game in gold.short)
    return [
        Row(f"games that the oracle solves, of {played}", solved, f">= {played - missing.total() - known}"),
        Row("games that ScienceWorld's own gold path does not solve, named above", len(lost), f"<= {known}"),
        Row("games whose gold path has not been computed, named above", missing.total(), ""),
    ]


def solves(task: Task) -> bool:
    with make(task.env) as env:
        env.reset(task=task)
        while True:
            step = env.step(env.oracle())
            if step.terminated or step.truncated:
                return bool(step.info.get("success"))


# ------------------------------------------------------------------------------------------------------- many episodes


class Crowd:
    """Follows the gold path. It waits until all episodes have begun, and kills a Java process in the middle of one."""

    privileged = True

    def __init__(self, episodes: int) -> None:
        self.episodes = episodes
        self.most_seats = self.most_jvms = self.megabytes = 0.0
        self.killed = 0

    async def act(self, conversation: Conversation) -> str:
        if conversation.turn == 1:
            while self.most_seats < self.episodes:
                self.look()
                await asyncio.sleep(0.05)
        self.look()
        if conversation.turn == 2 and not self.killed:
            self.killed = next(jvm.pid for jvm in shared_pool().jvms if jvm.pid)
            os.kill(self.killed, signal.SIGKILL)
        return await conversation.env.oracle()

    def look(self) -> None:
        """Note how many episodes and Java processes there are, and what they hold in memory."""
        jvms = shared_pool().jvms
        self.most_jvms = max(self.most_jvms, len(jvms))
        self.most_seats = max(self.most_seats, sum(jvm.seats for jvm in jvms))
        self.megabytes = max(self.megabytes, sum(resident(jvm.pid) for jvm in jvms if jvm.pid))


def crowd_rows(episodes: int) -> list[Row]:
    paths = shipped_paths()
    known = [(len(paths[game]), task) for task, group in every_task() if (game := game_of(task, group)) in paths]
    tasks = [task for _, task in sorted((one for one in known if one[0] > 3), key=lambda one: one[0])[:episodes]]
    policy = Crowd(episodes)
    played = palestra.collect(tasks, policy, concurrency=episodes, deadline=3600.0)  # all wait for each other
    lost = episodes - sum(one.reward is not None and abs(one.reward - 1) < 1e-6 for one in played)
    retried = sum(any(failure.boundary == "infrastructure" for failure in one.failures) for one in played)
    return [
        Row("episodes at once", policy.most_seats, f">= {episodes}"),
        Row("Java processes for them", policy.most_jvms, f"<= {MOST}"),
        Row("their resident memory together, MB", policy.megabytes, "<= 1500"),
        Row("episodes that were begun again after a Java process was killed", retried, ">= 1"),
        Row("episodes lost by it", lost, "<= 0"),
    ]


def resident(pid: int) -> float:
    """Megabytes of memory of a process, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# --------------------------------------------------------------------------------------------------------- robustness


def same_everywhere() -> int:
    """How many different hashes 1, 2 and 8 workers with two hash seeds give."""
    return different_hashes(IDS, seeds=4, wandering=20)


class Follow:
    """Follows the gold path for some turns."""

    privileged = True

    async def act(self, conversation: Conversation) -> str:
        return await conversation.env.oracle()


def disturbed(episodes: int) -> int:
    """How many episodes with bees and plants, which live by random numbers, differ when others are played at the same time."""
    living = [task for task, group in every_task() if group.endswith(("/grow-fruit", "/grow-plant"))][:episodes]
    texts = []
    for concurrency in (1, episodes):
        played = palestra.collect(living, Follow(), concurrency=concurrency, max_turns=TURNS, deadline=3600.0)
        texts.append([[text_of(turn.observation) for turn in one.turns] for one in played])
    return sum(alone != together for alone, together in zip(*texts, strict=True))


def random_rows(actions: int) -> list[Row]:
    """Random actions in the training games of all tasks in turn, and what the whole episodes score."""
    played = mishaps([f"science:{name}" for name in TASKS], actions)
    scores = [Score((), place, max(0.0, score)) for place, (_, score) in enumerate(played.scores)]
    mean = mean_interval(scores) if scores else None
    for name in TASKS:
        ours = [score for id, score in played.scores if id == f"science:{name}"]
        if ours:
            print(f"science: random play of {name}: {sum(ours):.2f} in {len(ours)} episodes, highest {max(ours):.2f}")
    return [
        Row("random actions played", played.actions, f">= {actions}"),
        Row("errors in the random actions", played.errors, "<= 0"),
        Row("whole episodes in them", len(scores), ""),
        *(
            Row(f"their mean score, {part} of a 95 % interval", getattr(mean, part), "")
            for part in ("mean", "low", "high")
            if mean
        ),
    ]


def hostile_rows(actions: int) -> list[Row]:
    played = mishaps([f"science:{name}" for name in TASKS], actions, hostile_text)
    return [
        Row("hostile actions played", played.actions, f">= {actions}"),
        Row("errors in the hostile actions", played.errors, "<= 0"),
    ]


def hostile_text(chance: Any, env: Guarded) -> str:
    """A hostile text: alone, or after a piece of a possible action."""
    text = TEXTS[int(chance.random() * len(TEXTS))]
    if chance.random() < 0.7:
        return text
    action = env.sample_random_action()
    return f"{action[: int(chance.random() * len(action))]}{text}"


# ---------------------------------------------------------------------------------------------------------------- cost


def cpu_of(pid: int) -> float:
    """CPU seconds of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def child_of_this_process(known: set[int]) -> int:
    """The Java process that was started since ``known`` was read."""
    return max(java_children() - known)


def java_children() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text().partition("(")[2].rsplit(")", 1)
        except OSError:
            continue
        if name == "java" and int(rest.split()[1]) == os.getpid():
            found.add(int(folder.name))
    return found


def bare_library(*options: str) -> tuple[Any, int]:
    """ScienceWorld's own environment, and the id of its Java process, which is started with ``options``."""
    import scienceworld.scienceworld as library

    before, launch = java_children(), library.launch_gateway
    library.launch_gateway = partial(launch, javaopts=list(options))
    try:
        return library.ScienceWorldEnv("", envStepLimit=1000), child_of_this_process(before)
    finally:
        library.launch_gateway = launch


def cost_rows() -> list[Row]:
    """CPU time of the same actions here and in the bare library, over the steps only.

    The limit is about what Palestra adds to the library: its own connection, the lock, the parsing and the text. Two rows
    carry it. The first compares with the library as it is used, ``ScienceWorldEnv.step``; that is an easy limit, because this
    function also asks for all valid actions. The second compares like with like: the three calls that a step needs (the action,
    the score, and whether the game has ended) by the library's own client, in a Java process with the same options. The third
    row has no limit, because its two sides do not give the same texts: without ``-XX:hashCode=2`` the texts of the bare library
    vary from run to run. It shows what determinism costs.
    """
    print(*COMPARED, sep="\n")
    names = ("find-animal", "chemistry-mix", "test-conductivity")
    games = [next(game for game in shipped_paths() if game.task == name) for name in names]
    (bare, bare_pid), (like_ours, like_ours_pid) = bare_library(), bare_library(*JAVA_OPTIONS)
    shared_pool().end()
    with make("science:find-animal-test") as env:
        env.reset(seed=0)
        (jvm,) = shared_pool().jvms
        assert jvm.pid is not None

        def timed(begin: Callable[[Game], object], act: Callable[[str], object], pid: int) -> float:
            spent = 0.0
            for game in games:
                begin(game)
                at = process_time() + cpu_of(pid)
                for action in shipped_paths()[game]:
                    act(action)
                spent += process_time() + cpu_of(pid) - at
            return spent

        def ours() -> float:
            with ExitStack() as playing:

                def begin(game: Game) -> None:
                    playing.close()  # the episodes of one game after the other stay in the same Java process
                    now.append(playing.enter_context(make(f"science:{game.task}", split="all")))
                    now[-1].reset(task=Task(f"science:{game.task}", 0, index=game.variation))

                now: list[Any] = []
                return timed(begin, lambda action: now[-1].step(f"Action: {action}"), jvm.pid or 0)

        def whole() -> float:
            return timed(lambda game: (bare.load(*game, ""), bare.reset()), bare.step, bare_pid)

        def calls(library: Any, pid: int) -> float:
            server = library.server
            act = lambda action: (server.step(action), server.getScore(), server.getCompleted())  # noqa: E731
            return timed(lambda game: library.load(*game, ""), act, pid)

        varying, same = partial(calls, bare, bare_pid), partial(calls, like_ours, like_ours_pid)
        for _ in range(10):  # the first rounds are those of Java's compiler
            ours(), varying(), same()
        over_same, over_varying, over_whole = (interleaved(theirs, ours, 5) for theirs in (same, varying, whole))
        assert shared_pool().jvms == (jvm,), "another Java process has played a part, and its CPU time was not counted"
    bare.close()
    like_ours.close()
    steps = sum(len(shipped_paths()[game]) for game in games)
    return [
        Row("CPU of a step over ScienceWorldEnv.step, the same actions", over_whole[2], "<= 1.3"),
        Row("CPU of a step over its three calls, like with like (the same Java options)", over_same[2], "<= 1.3"),
        Row("CPU of a step over its three calls without -XX:hashCode=2 (texts vary; no limit)", over_varying[2], ""),
        Row("CPU of a step, ms", over_whole[1] / steps * 1e3, ""),
    ]
