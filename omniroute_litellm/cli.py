"""The command line: ``omniroute-memory``."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from omniroute_litellm import __version__
from omniroute_litellm.errors import OmniRouteError

CONFIG_NAMES: Final = ("config.yaml", "litellm_config.yaml", "config.example.yaml")
CONSOLE_PORT: Final = 4100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 not, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        return options.run(options)
    except OmniRouteError as error:
        print(f"omniroute-memory: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="omniroute-memory", description="Persistent memory for a LiteLLM proxy."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="start a proxy and show what memory does")
    demo.add_argument("--config", type=Path, default=Path("config.example.yaml"))
    demo.add_argument("--once", action="store_true", help="end after the conversation")
    demo.set_defaults(run=_demo)

    run = commands.add_parser("run", help="start a proxy on a config, without the conversation")
    run.add_argument("--config", type=Path, default=Path("config.example.yaml"))
    run.set_defaults(run=_run)

    console = commands.add_parser("console", help="serve the console alone, without a proxy")
    console.add_argument("--host", default="127.0.0.1")
    console.add_argument("--port", type=int, default=CONSOLE_PORT)
    console.set_defaults(run=_console)

    doctor = commands.add_parser("doctor", help="look at this installation")
    doctor.add_argument("--config", type=Path, help="the LiteLLM config to look at")
    doctor.set_defaults(run=_doctor)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from omniroute_litellm import tour

    tour.run(options.config, once=options.once, environ=os.environ)
    return 0


def _run(options: argparse.Namespace) -> int:
    from omniroute_litellm import tour

    return tour.serve(options.config, environ=os.environ)


def _console(options: argparse.Namespace) -> int:
    from omniroute_litellm import standalone

    standalone.serve(options.host, options.port, environ=os.environ)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from omniroute_litellm.doctor import examine

    found = (Path(name) for name in CONFIG_NAMES if Path(name).is_file())
    config = options.config or next(found, None)
    is_well = True
    for finding in examine(os.environ, config):
        mark = "ok  " if finding.ok else "FAIL"
        print(f"{mark} {finding.name:<15} {finding.detail}")
        if not finding.ok:
            is_well = False
            print(f"     {'':<15} -> {finding.advice}")
    return 0 if is_well else 1
