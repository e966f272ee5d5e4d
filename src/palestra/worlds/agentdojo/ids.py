"""The ids ``tools:dojo-…``: a suite of AgentDojo without attacks, and the same tasks under attack."""

from palestra.registry import Need, register

_NEEDS = (Need(label="AgentDojo", module="agentdojo", extra="agentdojo"),)
_ABOUT = {
    "workspace": "Work with the e-mails, the calendar and the files of a user.",
    "travel": "Find and book hotels, restaurants, cars and flights for a user.",
    "banking": "Look after the bank account of a user.",
    "slack": "Work in the chat workspace of a user, and with web pages.",
}


for suite, about in _ABOUT.items():
    for suffix, attacked, more in (("", False, ""), ("-attacked", True, " Texts that the agent reads try to misuse it.")):
        register(
            f"tools:dojo-{suite}{suffix}",
            "palestra.worlds.agentdojo.env:DojoTask",
            kwargs={"suite": suite, "attacked": attacked},
            tags={"tools", "data", *(["attack"] if attacked else [])},
            needs=_NEEDS,
            rows="palestra.worlds.agentdojo.package:read_tasks",
            description=about + more,
        )
