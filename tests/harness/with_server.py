#!/usr/bin/env python3
"""Runs one command with a server of its own beside it, and ends the server afterwards.

    tests/harness/with_server.py [--server PATH] [--tls] [--password WORD] [--unix]
                                 [--threads N] [--option NAME=VALUE]... -- COMMAND [ARGUMENT]...

The command finds the server by FOREBAY_HOST, FOREBAY_PORT, FOREBAY_ADDRESS and, where asked for,
FOREBAY_PASSWORD, FOREBAY_UNIX_SOCKET, FOREBAY_TLS_PORT, FOREBAY_TLS_NAME and FOREBAY_TLS_CA.
Exits as the command does; 1 where the server died meanwhile or did not end by itself on SIGTERM.
"""

import argparse
import os
import signal
import subprocess
import sys

from server import Server


def main():
    parser = argparse.ArgumentParser(description="Runs a command with a server beside it.")
    parser.add_argument("--server", help="the server's binary; default FOREBAY_SERVER")
    parser.add_argument("--tls", action="store_true", help="also a TLS port, certificates made")
    parser.add_argument("--password", help="requirepass")
    parser.add_argument("--unix", action="store_true", help="also a unix socket")
    parser.add_argument("--threads", type=int, help="Forebay's threads; redis-server has one")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("no command to run")
    # So that the clean-up below also runs where a time limit ends this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = Server(
        arguments.server,
        options=dict(option.split("=", 1) for option in arguments.option),
        tls=arguments.tls, password=arguments.password, unix_socket=arguments.unix,
        threads=arguments.threads,
    )
    try:
        server.start()
        environment = os.environ | server.environment()
        code = subprocess.run(command, env=environment).returncode
        if not server.is_running():
            print("the server died:", server.log_path.read_text(errors="replace")[-3000:])
            return 1
        if server.stop() != 0:
            print("the server did not end cleanly on SIGTERM")
            return 1
        return code
    finally:
        server.stop()
        server.remove_folder()


if __name__ == "__main__":
    sys.exit(main())
