"""Agents of other frameworks: programs that play episodes, and the gateway that records their calls."""

from palestra.agents.capture import Capture, probe
from palestra.agents.episode import AgentEpisode, CallBudget, SamplingRule
from palestra.agents.gateway import Gateway, OpenEpisode
from palestra.agents.graph import CallRole, Link
from palestra.agents.limits import GatewayLimits
from palestra.agents.program import Program
from palestra.agents.recording import Recording
from palestra.agents.upstream import Upstream

__all__ = [
    "AgentEpisode",
    "CallBudget",
    "CallRole",
    "Capture",
    "Gateway",
    "GatewayLimits",
    "Link",
    "OpenEpisode",
    "Program",
    "Recording",
    "SamplingRule",
    "Upstream",
    "probe",
]
