"""The scheme ``remote:URL#id``: the environment ``id`` of a server. Nothing of the network is imported for it."""

from palestra.registry import Need, register_scheme

register_scheme(
    "remote",
    "palestra.serve.client:RemoteEnv",
    needs=[Need(label="websockets", module="websockets", extra="serve")],
)
