"""What the tests of cached tables share: a server with tables, requests to it, tokens."""

import base64
import hashlib
import hmac
import http.client
import json
import pathlib
import socket
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import server as harness  # noqa: E402

SECRET = "a secret of the tests"
AUDIENCE = "urn:microsoft:windows-azure:zumo"
TABLES = {"tables": {
    "todo": {
        "columns": {"text": "text", "rank": "int", "price": "real", "done": "bool", "due": "date"},
        "softDelete": True, "pageSize": 5, "maxTop": 100,
        "cache": {"ttlMs": 60000, "staleMs": 0, "refreshBeta": 0},
    },
    "mine": {"columns": {"text": "text"}, "perUser": "owner"},
    "short": {"columns": {"text": "text"}, "cache": {"ttlMs": 300, "staleMs": 0,
                                                     "refreshBeta": 0}},
    "open": {"columns": {"text": "text"}, "dynamicSchema": True},
    "counted": {"columns": {"text": "text"}, "id": "int", "access": {"delete": "disabled"}},
}}


class Answer:
    """A status, headers by lower-case names, and a body."""

    def __init__(self, response, body):
        self.status, self.body = response.status, body
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self):
        return json.loads(self.body)


def call(port, method, path, body=None, **headers):
    """One request on a connection of its own; underscores in names of headers are dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    named = {"zumo-api-version": "2.0.0"}
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    named = {name: value for name, value in named.items() if value is not None}
    body = json.dumps(body) if isinstance(body, (dict, list)) else body
    connection.request(method, path, body, named)
    response = connection.getresponse()
    answer = Answer(response, response.read())
    connection.close()
    return answer


def where(table, **parameters):
    """A table's address with parameters; each name stands for $name."""
    words = {f"${name}": value for name, value in parameters.items()}
    return f"/tables/{table}?" + urllib.parse.urlencode(words)


def token(user, secret=SECRET, **claims):
    """A JSON web token as the server takes it."""
    def encode(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    claims = {"sub": user, "iss": AUDIENCE, "aud": AUDIENCE, "exp": time.time() + 600} | claims
    header = claims.pop("header", {"alg": "HS256", "typ": "JWT"})
    signed = encode(json.dumps(header).encode()) + "." + encode(json.dumps(claims).encode())
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{encode(mac)}"


def resp(port, *words):
    """One command over RESP; its reply as bytes, errors and arrays as they come."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        text = b"*%d\r\n" % len(words)
        for word in words:
            raw = word if isinstance(word, bytes) else str(word).encode()
            text += b"$%d\r\n%s\r\n" % (len(raw), raw)
        wire.sendall(text)
        stream = wire.makefile("rb")
        return read_reply(stream)


def read_reply(stream):
    line = stream.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"$":
        if rest == b"-1":
            return None
        body = stream.read(int(rest) + 2)
        return body[:-2]
    if kind == b"*":
        return [read_reply(stream) for _ in range(int(rest))]
    if kind == b":":
        return int(rest)
    return line


class Forebay:
    """A server with the tables above over a SQLite file of its own."""

    def __init__(self, **options):
        self.http = harness.free_port()
        self.files = tempfile.TemporaryDirectory(prefix="forebay-tables-")
        path = pathlib.Path(self.files.name) / "tables.json"
        path.write_text(json.dumps(TABLES))
        self.database = str(pathlib.Path(self.files.name) / "tables.db")
        named = {name.replace("_", "-"): value for name, value in options.items()}
        self.server = harness.Server(options={
            "http-port": self.http, "tables": "yes", "tables-file": str(path),
            "sql": f"sqlite:{self.database}", "tables-jwt-secret": SECRET,
        } | named)

    def __enter__(self):
        self.start()
        return self

    def start(self):
        """Starts the server; returns when it answers over HTTP as well."""
        self.server.start()
        until = time.monotonic() + harness.START_SECONDS_MAX
        while True:
            try:
                return self.call("GET", "/readyz")
            except OSError:
                if time.monotonic() > until:
                    raise SystemExit("no HTTP: " + self.server.log_path.read_text()[-2000:])
                time.sleep(0.02)

    def __exit__(self, *_):
        self.server.stop()
        self.server.remove_folder()
        self.files.cleanup()

    def call(self, method, path, body=None, **headers):
        return call(self.http, method, path, body, **headers)

    def resp(self, *words):
        return resp(self.server.port, *words)

    def stats(self):
        """TABLE.STATS as numbers by name."""
        flat = self.resp("TABLE.STATS")
        return {name.decode(): count for name, count in zip(flat[::2], flat[1::2])}


def run(cases):
    """Runs the functions, prints what each came to, and returns how many failed."""
    failed = 0
    for case in cases:
        try:
            case()
            print(f"ok      {case.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"FAILED  {case.__name__}: {error}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed
