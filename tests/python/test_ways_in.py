"""The ways into the server: TLS, unix socket, password, protocol switch, pool, client names."""

import contextlib
import socket

import pytest
import redis
from conftest import PASSWORD


def tls_client(server, **options):
    return redis.Redis(
        server.host, server.tls_port, ssl=True, ssl_cert_reqs="required",
        ssl_ca_certs=str(server.folder / "ca.crt"), socket_timeout=20, **options,
    )


def test_tls_with_the_servers_authority(server, protocol):
    with tls_client(server, protocol=protocol) as client:
        value = bytes(range(256)) * 4096
        assert client.set("tls", value)
        assert client.get("tls") == value


def test_tls_pipeline_of_many_replies(server, protocol):
    with tls_client(server, protocol=protocol) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(5000):
            pipe.set(f"tls:{number}", "x" * 100).get(f"tls:{number}")
        assert pipe.execute() == [True, b"x" * 100] * 5000


def test_tls_refuses_an_authority_it_does_not_know(server):
    with redis.Redis(server.host, server.tls_port, ssl=True) as client:
        with pytest.raises(redis.ConnectionError, match="(?i)certificate"):
            client.ping()


def test_tls_port_survives_plain_text(server):
    with socket.create_connection((server.host, server.tls_port), timeout=10) as wire:
        wire.sendall(b"PING\r\n" * 10)
        with contextlib.suppress(ConnectionError):
            while wire.recv(1024):
                pass
    with tls_client(server) as client:
        assert client.ping()


def test_unix_socket(server, protocol):
    with redis.Redis(unix_socket_path=server.unix_path, protocol=protocol) as client:
        assert client.set("unix", "1")
        assert client.incr("unix") == 2


def test_password(locked_server, protocol):
    place = {"host": locked_server.host, "port": locked_server.port, "protocol": protocol}
    with redis.Redis(**place, password=PASSWORD) as client:
        assert client.ping()
    with redis.Redis(**place, username="default", password=PASSWORD) as client:
        assert client.ping()
    with redis.Redis(**place, password="wrong") as client:
        with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
            client.ping()


def test_no_command_before_the_password(locked_server):
    place = (locked_server.host, locked_server.port)
    with socket.create_connection(place, timeout=10) as wire:
        wire.sendall(b"GET x\r\nNOSUCH\r\nPING\r\nHELLO 3\r\n")
        with wire.makefile("rb") as replies:
            lines = [replies.readline() for _ in range(4)]
        # As in Redis, that a command is unknown is found before that a password is missing.
        words = [line.split()[0] for line in lines]
        assert words == [b"-NOAUTH", b"-ERR", b"-NOAUTH", b"-NOAUTH"], lines


def test_protocol_is_what_was_asked_for(client, protocol):
    reply = client.execute_command("HELLO")
    # RESP2 has no map: the same pairs come as one flat list.
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))
    assert fields["proto"] == protocol
    assert fields["role"] == "master"


def test_reset_ends_all_state(server):
    with socket.create_connection((server.host, server.port), timeout=10) as wire:
        replies = wire.makefile("rb")
        wire.sendall(b"SELECT 3\r\nCLIENT SETNAME x\r\nMULTI\r\nRESET\r\nCLIENT GETNAME\r\n")
        lines = [replies.readline().strip() for _ in range(5)]
        replies.close()
    assert lines == [b"+OK", b"+OK", b"+OK", b"+RESET", b"$-1"]


def test_client_list_names_the_client(connect):
    client = connect(client_name="harness", lib_name="forebay-tests", lib_version="1.0")
    mine = [line for line in client.client_list() if line["name"] == "harness"]
    assert len(mine) == 1
    assert int(mine[0]["id"]) == client.client_id()
    assert client.client_info()["name"] == "harness"


def test_client_kill_closes_the_connection(client, connect):
    victim = connect(single_connection_client=True, retry=None)
    number = victim.client_id()
    assert client.client_kill_filter(_id=number) == 1
    assert number not in {int(line["id"]) for line in client.client_list()}


def test_databases_are_apart(client, connect):
    client.set("here", "0")
    third = connect(db=3)
    assert third.get("here") is None
    third.set("here", "3")
    assert client.move("here", 4)
    assert connect(db=4).get("here") == "0"
    client.swapdb(0, 3)
    assert client.get("here") == "3"
    assert third.get("here") is None


def test_two_hundred_connections(connect):
    clients = [connect() for _ in range(200)]
    for one in clients:
        one.incr("connections")
    assert clients[0].get("connections") == "200"
    assert len(clients[0].client_list()) >= 200
