"""Agents of other frameworks: the gateway that answers their calls from an engine and records exact tokens."""

from palestra.agents.capture import Capture, probe
from palestra.agents.episode import AgentEpisode, CallBudget, SamplingRule
from palestra.agents.gateway import Gateway, GatewayLimits, OpenEpisode
from palestra.agents.graph import CallRole, Link
from palestra.agents.recording import CallRecord, Recording

__all__ = [
    "AgentEpisode",
    "CallBudget",
    "CallRecord",
    "CallRole",
    "Capture",
    "Gateway",
    "GatewayLimits",
    "Link",
    "OpenEpisode",
    "Recording",
    "SamplingRule",
    "probe",
]
