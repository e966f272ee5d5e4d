"""A player of the household tasks that reads only the text: the tasks can be solved without privileged knowledge."""

import re
from typing import Any

__all__ = ["Searcher"]

ASKED = (
    ("pick", r"Put one (?P<kind>.+?) (?:into|on) an? (?P<target>.+)\."),
    ("pick", r"Find an? (?P<kind>.+?) and leave it (?:in|on) an? (?P<target>.+)\."),
    ("look", r"Look at an? (?P<kind>.+?) in the light of an? (?P<target>.+)\."),
    ("look", r"Hold an? (?P<kind>.+?) beside an? (?P<target>.+?) that you have switched on\."),
    ("clean", r"(?:Put a clean|Clean one) (?P<kind>.+?)(?:, then leave it)? (?:into|in|on) an? (?P<target>.+)\."),
    ("heat", r"(?:Put a hot|Heat one) (?P<kind>.+?)(?:, then leave it)? (?:into|in|on) an? (?P<target>.+)\."),
    ("cool", r"(?:Put a cold|Cool one) (?P<kind>.+?)(?:, then leave it)? (?:into|in|on) an? (?P<target>.+)\."),
    ("two", r"Find two things of the kind (?P<kind>.+?) and put both (?:into|on) the same (?P<target>.+)\."),
    ("two", r"Bring together two things of the kind (?P<kind>.+?) (?:in|on) one (?P<target>.+)\."),
)
TOOLS = {"clean": "sink", "heat": "microwave", "cool": "fridge"}
SHOWN = re.compile(r"(?:On it|In it|Inside): (.+?)\.(?: |$)")


class Searcher:
    """Visits the places in the order of the list until it has found what it needs.

    Args:
        env: A household task after ``reset``. Only ``step`` is called.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.over = False
        self.solved = False

    def play(self, observation: str) -> bool:
        """Play the episode that begins with ``observation``, and return whether the task was solved."""
        wish = re.findall(r"Task: (.+)", observation)[0]
        self.task, found = next((task, match) for task, form in ASKED if (match := re.fullmatch(form, wish)))
        self.places: list[str] = re.findall(r"You see: (.+)\.", observation)[0].split(", ")
        self.kind, self.target = found["kind"], found["target"]
        self.seen: dict[str, list[str]] = {}
        goal = next((place for place in self.places if self.is_a(place, self.target)), "")
        while not self.over:
            self.fetch(avoid=goal if self.task in ("pick", "two") else "")
            if self.task == "look":
                self.visit(self.find(self.target, ""))
                self.say(f"use {self.thing(self.target)}")
            else:
                if self.task in TOOLS:
                    tool = f"{TOOLS[self.task]} 1"
                    self.say(f"go to {tool}")
                    self.say(f"{self.task} {self.held} with {tool}")
                self.visit(goal)
                self.say(f"move {self.held} to {goal}")
        return self.solved

    def is_a(self, name: str, kind: str) -> bool:
        return name.rpartition(" ")[0] == kind

    def say(self, command: str) -> str:
        if self.over:
            return ""
        step = self.env.step(command)
        self.over, self.solved = step.terminated or step.truncated, step.reward == 1.0
        return str(step.observation)

    def visit(self, place: str) -> None:
        text = self.say(f"go to {place}")
        if "It is closed" in text:
            text = self.say(f"open {place}")
        elif "already at" in text:
            text = self.say(f"examine {place}")
            if "It is closed" in text:
                text = self.say(f"open {place}")
        shown = SHOWN.search(text)
        self.seen[place] = shown[1].split(", ") if shown else []

    def find(self, kind: str, avoid: str) -> str:
        """The place of a thing of ``kind``; visits places until it knows one."""
        while not self.over:
            for place, content in self.seen.items():
                if place != avoid and any(self.is_a(name, kind) for name in content):
                    return place
            unseen = [place for place in self.places if place not in self.seen]
            if not unseen:
                self.over = True
                break
            self.visit(unseen[0])
        return self.places[0]

    def thing(self, kind: str) -> str:
        return next((name for content in self.seen.values() for name in content if self.is_a(name, kind)), "")

    def fetch(self, avoid: str) -> None:
        place = self.find(self.kind, avoid)
        if self.over:
            return
        self.visit(place)
        self.held = next((name for name in self.seen[place] if self.is_a(name, self.kind)), "")
        if not self.held:  # the last turn was used up on the way
            return
        self.say(f"take {self.held} from {place}")
        self.seen[place].remove(self.held)
