"""The model server's own process: `python -m examples.local_model.serve --model FILE --port PORT --threads N`.

The engine is native code, and native code can crash: so it never shares a process with a worker. It answers OpenAI
Chat Completions (and Responses, and Anthropic Messages) on 127.0.0.1 only, without a key, one request at a time.
An answer 500 "does not match the expected peg-native format" means that the model called a function that it was not
offered, or wrote broken JSON; at temperature 0 the same request fails again.

Ends on SIGTERM, and with `--until-stdin-closes` also when the pipe from its parent closes. The kernel closes that pipe
however the parent dies, `kill -9` included. (Linux's parent-death signal would not do: it is sent when the *thread*
that started the child ends, and a server is often started from a short-lived thread.)
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

TEMPLATE = Path(__file__).with_name("json_tools.jinja")
"""The chat template with which small models call tools; its header says why it works."""


def main() -> None:
    """Serve until told to stop."""
    options = _options()
    import xllamacpp  # type: ignore[import-not-found, import-untyped, unused-ignore]  # the extra `local-model`

    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {"local"}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_ctx = options.context
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.use_jinja = True
    if not options.own_template:
        params.chat_template = TEMPLATE.read_text(encoding="utf-8")
    params.cors_origins = ""  # no web page may ask it
    params.offline = True
    params.ui = False
    server = xllamacpp.Server(params)
    print(f"serving {options.model} at {server.listening_address}", flush=True)
    if options.until_stdin_closes:
        sys.stdin.buffer.read()
        os._exit(0)
    signal.pause()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.local_model.serve", description="Serve a GGUF model.")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--port", type=int, default=7510)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=8192, help="tokens of context")
    parser.add_argument("--own-template", action="store_true", help="use the chat template inside the model file")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the parent process does")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a traceback
    main()
