"""A small language model on this machine, for the demo and for tests that want a real one.

`weights` fetches the model file as data and checks it, `serve` runs the native server in a process of its own,
and `server` starts and stops that process. Needs the extra `local-model`; nothing in `outlast` imports this.

    from examples.local_model.server import LocalModelServer
    from examples.local_model.weights import find_model

    with LocalModelServer(find_model()) as server:
        ...  # an OpenAI-compatible endpoint at server.base_url
"""

from .server import LocalModelServer, ServerFailed
from .weights import Model, WeightsError, find_model

__all__ = ["LocalModelServer", "Model", "ServerFailed", "WeightsError", "find_model"]
