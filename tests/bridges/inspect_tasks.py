"""Tasks of Inspect for the tests: plain questions, several messages, several turns, and what Palestra refuses."""

from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import choice, includes, match
from inspect_ai.solver import Generate, Solver, TaskState, generate, multiple_choice, solver, system_message, use_tools
from inspect_ai.tool import Tool, tool


@task
def sums(count: int = 10) -> Task:
    samples = [Sample(input=f"What is {number} + {number}?", target=str(2 * number), id=number) for number in range(count)]
    return Task(dataset=samples, solver=[system_message("Answer briefly."), generate()], scorer=[match(), includes()])


@task
def choices() -> Task:
    sample = Sample(input="Which is a fruit?", choices=["stone", "pear"], target="B")
    return Task(dataset=[sample], solver=multiple_choice(), scorer=choice())


@task
def shown() -> Task:
    said = [
        ChatMessageSystem(content="S"),
        ChatMessageUser(content="1"),
        ChatMessageAssistant(content="2"),
        ChatMessageUser(content="3"),
    ]
    return Task(dataset=[Sample(input=said, target="4")], scorer=includes())


@solver
def twice() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        state.messages.append(ChatMessageUser(content="Are you sure?"))
        return await generate(state)

    return solve


@task
def asked_twice() -> Task:
    return Task(dataset=[Sample(input="Say yes.", target="yes")], solver=twice(), scorer=includes())


@tool
def nothing() -> Tool:
    async def execute(text: str) -> str:
        """Do nothing.

        Args:
            text: Any text.
        """
        return text

    return execute


@task
def with_tools() -> Task:
    return Task(dataset=[Sample(input="x", target="y")], solver=[use_tools(nothing()), generate()], scorer=includes())


@solver
def silent() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return state

    return solve


@task
def never_asks() -> Task:
    return Task(dataset=[Sample(input="x", target="y")], solver=silent(), scorer=includes())


@task
def boxed() -> Task:
    return Task(dataset=[Sample(input="x", target="y")], scorer=includes(), sandbox="local")


@solver
def counting() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.metadata["asked"].append(1)
        state.messages[-1].content = f"Asked {len(state.metadata['asked'])} times. {state.messages[-1].text}"
        return await generate(state)

    return solve


@task
def writes_metadata() -> Task:
    said = [ChatMessageUser(content="Say yes.")]
    return Task(dataset=[Sample(input=said, target="yes", metadata={"asked": []})], solver=counting(), scorer=includes())


def undecorated() -> Any:
    raise AssertionError("only a function with @task may be called")
