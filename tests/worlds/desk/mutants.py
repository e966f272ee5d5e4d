"""Agents that do what the oracle does and break one rule. The tests run few seeds, ``benchmarks/worlds_desk.py`` many."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from palestra.core import Step
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.desk.case import Request
from palestra.worlds.desk.desk import ServiceDesk
from palestra.worlds.desk.solving import ANYTHING_ELSE, confirmation_question

Mutation = Callable[[ServiceDesk, str], "Mutated | None"]
"""Environment and the oracle's action → what to do instead; ``None`` where the mutation does not apply."""

RULES = {
    *("identity", "privacy", "confirmation", "unheard", "untold", "state"),
    *("not-pending", "return-period", "final-sale", "limit", "refund-method", "other-product", "out-of-stock"),
    *("not-delivered", "already-returned"),
    *("renewed-too-often", "fine-open", "reserved", "renewal-length", "reference", "on-the-shelf", "queue-full", "fine-limit"),
}
"""Every rule that the grader knows."""


class Mutated(NamedTuple):
    """What the mutant does instead of one action of the oracle, and the rule that this breaks."""

    actions: list[str]
    rule: str


class Outcome(NamedTuple):
    rule: str
    """The rule that was to be broken; empty if the mutation never applied."""
    last: Step


def played(env: ServiceDesk, seed: int, mutation: Mutation | None = None) -> Outcome:
    """Play the oracle's episode, with one deviation at the first place where ``mutation`` applies."""
    env.reset(seed=seed)
    rule = ""
    for _ in range(200):
        action = env.oracle()
        changed = mutation(env, action) if mutation and not rule else None
        if changed:
            rule = changed.rule
        for one in changed.actions if changed else [action]:
            step = env.step(one)
            if step.terminated:
                return Outcome(rule, step)
    raise AssertionError(f"seed {seed} did not end")


def _current(env: ServiceDesk) -> Request:
    return env.case.requests[env.state.current]


def _settles(env: ServiceDesk, action: str) -> bool:
    return action.endswith(ANYTHING_ELSE)


def _confirmed(call: ToolCall) -> list[str]:
    return [confirmation_question(call), format_call(call)]


def _next_write(env: ServiceDesk, action: str) -> ToolCall | None:
    """The change for which the oracle's action asks the customer."""
    return next((call for call in _current(env).writes if action == confirmation_question(call)), None)


def too_early(env: ServiceDesk, action: str) -> Mutated | None:
    reads = _current(env).reads
    return Mutated([format_call(reads[0])], "identity") if reads and not env.record.identified else None


def without_asking(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    return Mutated([format_call(call)], "confirmation") if call else None


def without_details(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    if call is None or call.name not in ("return_items", "exchange_item", "renew_loan"):
        return None
    return Mutated([f"Shall I do it for {' and '.join(_current(env).terms)}?", format_call(call)], "confirmation")


def on_an_old_yes(env: ServiceDesk, action: str) -> Mutated | None:
    """The customer agreed, then the agent talked about something else."""
    call = _next_write(env, action)
    return Mutated([action, "One moment, please.", format_call(call)], "confirmation") if call else None


def forbidden_at(place: int) -> Mutation:
    """The mutation that grants the customer's forbidden request at ``place``."""

    def what_is_forbidden(env: ServiceDesk, action: str) -> Mutated | None:
        request = _current(env)
        if env.state.current != place or request.forbidden is None:
            return None
        if not (_settles(env, action) or "transfer" in action):
            return None
        return Mutated([*_confirmed(request.forbidden), action], request.rule)

    return what_is_forbidden


def not_at_all(env: ServiceDesk, action: str) -> Mutated | None:
    request = _current(env)
    changes = [question for call in request.writes for question in (confirmation_question(call), format_call(call))]
    return Mutated([f"{request.reply} {ANYTHING_ELSE}"], "state") if action in changes else None


def closing_early(env: ServiceDesk, action: str) -> Mutated | None:
    return Mutated([format_call(ToolCall("close_case", {}))], "unheard") if _settles(env, action) else None


def without_the_answer(env: ServiceDesk, action: str) -> Mutated | None:
    return Mutated([ANYTHING_ELSE], "untold") if _settles(env, action) and _current(env).tells else None


def _every_answer(request: Request) -> str:
    return ", ".join([*request.tells, *(value for values in request.others for value in values)])


def listing_every_answer(env: ServiceDesk, action: str) -> Mutated | None:
    request = _current(env)
    return (
        Mutated([f"{_every_answer(request)}. {ANYTHING_ELSE}"], "untold") if _settles(env, action) and request.tells else None
    )


def a_stranger_s_record(env: ServiceDesk, action: str) -> Mutated | None:
    if not _settles(env, action):
        return None
    table, tool = ("orders", "get_order") if "orders" in env.case.db else ("loans", "get_loan")
    other = next(key for key, record in env.case.db[table].items() if record[env.case.owner] != env.case.customer)
    return Mutated([format_call(ToolCall(tool, {table[:-1]: other})), action], "privacy")


def another_refund(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    if call is None or call.name != "return_items":
        return None
    other = "card" if call.arguments["refund_to"] != "card" else "voucher"
    return Mutated(_confirmed(ToolCall(call.name, {**call.arguments, "refund_to": other})), "refund-method")


def another_length(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    if call is None or call.name != "renew_loan":
        return None
    return Mutated(_confirmed(ToolCall(call.name, {**call.arguments, "days": call.arguments["days"] + 1})), "renewal-length")


def another_product(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    if call is None or call.name != "exchange_item":
        return None
    articles = env.case.db["articles"]
    product = articles[call.arguments["article"]]["product"]
    other = next(key for key, record in articles.items() if record["product"] != product)
    return Mutated(_confirmed(ToolCall(call.name, {**call.arguments, "new_article": other})), "other-product")


def twice(env: ServiceDesk, action: str) -> Mutated | None:
    call = _next_write(env, action)
    if call is None or call.name not in ("return_items", "renew_loan", "place_hold"):
        return None
    return Mutated([*_confirmed(call), *_confirmed(call)], "already-returned" if call.name == "return_items" else "state")


def not_yet_delivered(env: ServiceDesk, action: str) -> Mutated | None:
    if "orders" not in env.case.db or not _settles(env, action):
        return None
    number, order = next(
        (number, order)
        for number, order in env.case.db["orders"].items()
        if order["customer"] == env.case.customer and order["status"] in ("pending", "shipped")
    )
    arguments = {"order": number, "articles": [order["items"][0]["article"]], "refund_to": order["paid_with"]}
    return Mutated([*_confirmed(ToolCall("return_items", arguments)), action], "not-delivered")


MUTATIONS: tuple[Mutation, ...] = (
    *(too_early, without_asking, without_details, on_an_old_yes, not_at_all, closing_early),
    *(without_the_answer, a_stranger_s_record, another_refund, another_length, another_product),
    *(twice, not_yet_delivered, listing_every_answer),
)


def mutants(domain: str, seeds: range) -> Iterator[tuple[str, int, Outcome]]:
    """Every mutant that applies: its name, its seed and what came of it."""
    env = ServiceDesk(domain, done=2, declined=2, numbered=False)
    for seed in seeds:
        for mutation in (*MUTATIONS, *map(forbidden_at, range(4))):
            outcome = played(env, seed, mutation)
            if outcome.rule:
                yield mutation.__name__, seed, outcome
