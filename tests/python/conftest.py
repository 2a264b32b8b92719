"""One server for the whole run (plain port, TLS port, unix socket), and one that wants a password.

`client` and `other` are two connected clients of an empty server, in RESP2 and then in RESP3.
"""

import pathlib
import sys

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server  # noqa: E402 (found by the line above)

PASSWORD = "correct horse €"


@pytest.fixture(scope="session")
def server():
    with Server(tls=True, unix_socket=True) as running:
        yield running


@pytest.fixture(scope="session")
def locked_server():
    with Server(password=PASSWORD) as running:
        yield running


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request):
    return request.param


@pytest.fixture
def connect(server, protocol):
    """Makes clients of the server; all are closed after the test."""
    clients = []

    def make(**options):
        options = {"decode_responses": True, "socket_timeout": 20} | options
        made = redis.Redis(server.host, server.port, protocol=protocol, **options)
        clients.append(made)
        return made

    make().flushall()
    yield make
    for made in clients:
        made.close()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def other(connect):
    return connect()
