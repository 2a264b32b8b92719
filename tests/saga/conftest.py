"""One server with sagas, and participants that do as each test says.

`api` speaks HTTP to the server, `redis_client` RESP, `busi` is a server of participants: it keeps
what it was called with, and answers by a script.
"""

import http.client
import http.server
import json
import pathlib
import sys
import threading
import time
import urllib.parse

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server, free_port  # noqa: E402 (found by the line above)


class Busi:
    """Participants. `script(gid, path, answers)` sets what the next calls are told: a status, or
    (status, body), or (status, body, headers), or seconds to sleep as a float."""

    def __init__(self):
        self.calls, self.scripts = [], {}
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self):
                outer.answer(self)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def script(self, gid, path, *answers):
        with self.lock:
            self.scripts[gid, path] = list(answers)

    def answer(self, request):
        length = int(request.headers.get("content-length") or 0)
        body = request.rfile.read(length).decode()
        split = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(split.query))
        if not query.get("gid") and body.startswith("{"):
            query = json.loads(body).get("params") or query
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = {"method": request.command, "path": split.path, "query": query, "body": body,
                "headers": headers, "at": time.monotonic()}
        with self.lock:
            self.calls.append(call)
            script = self.scripts.get((query.get("gid"), split.path), [])
            told = script.pop(0) if script else 200
        if isinstance(told, float):
            time.sleep(told)
            told = 200
        told = told if isinstance(told, tuple) else (told, "{}")
        status, text, extra = (*told, {})[:3]
        request.send_response(status)
        for name, value in extra.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(text)))
        request.end_headers()
        request.wfile.write(text.encode())

    def of(self, gid):
        with self.lock:
            return [call for call in self.calls if call["query"].get("gid") == gid]

    def shown(self, gid):
        return " ".join(f"{c['path']}:{c['query']['op']}" for c in self.of(gid))


class Api:
    """The server's HTTP door."""

    def __init__(self, port, key=None):
        self.port, self.key = port, key

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        try:
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        is_json = "json" in (answer.headers.get("content-type") or "")
        return answer.status, json.loads(content) if is_json else content

    def dtm(self, name, body=None, **query):
        path = f"/api/dtmsvr/{name}" + ("?" + urllib.parse.urlencode(query) if query else "")
        return self.ask("GET" if body is None else "POST", path, body)

    def gid(self):
        return self.dtm("newGid")[1]["gid"]

    def state(self, gid):
        return self.dtm("query", gid=gid)[1]

    def status(self, gid):
        return (self.state(gid)["transaction"] or {}).get("status")

    def await_status(self, gid, wanted, seconds=12):
        until = time.monotonic() + seconds
        while self.status(gid) != wanted:
            assert time.monotonic() < until, (gid, self.state(gid), wanted)
            time.sleep(0.02)

    def rpc(self, method, params, **envelope):
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params} | envelope
        return self.ask("POST", "/api/json-rpc", body)


def await_http(port, seconds=10):
    """The door of HTTP may open a moment after RESP's."""
    until = time.monotonic() + seconds
    while True:
        try:
            return Api(port).ask("GET", "/livez")
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture(scope="session")
def server(busi):
    port = free_port()
    options = {"saga": "yes", "http-port": port, "saga-retry-seconds": 1,
               "saga-timeout-seconds": 3, "saga-tries-max": 4, "saga-request-seconds": 2,
               "saga-local-steps": "yes", "appendonly": "yes",
               "saga-finished-stream": "ended", "saga-webhook": f"{busi.url}/hook",
               "saga-target-failures-max": 3}
    with Server(options=options) as running:
        running.http_port = port
        await_http(port)
        yield running


@pytest.fixture(scope="session")
def api(server):
    return Api(server.http_port)


@pytest.fixture(scope="session")
def busi():
    return Busi()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def redis_client(server, request):
    client = redis.Redis(server.host, server.port, protocol=request.param, socket_timeout=20,
                         decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def gid(api):
    return api.gid()


@pytest.fixture
def saga(busi, gid):
    """A request for a saga of two steps, under `gid`."""
    def step(name):
        return {"action": f"{busi.url}/{name}", "compensate": f"{busi.url}/{name}-back"}
    return {"gid": gid, "trans_type": "saga", "wait_result": True, "retry_interval": 1,
            "steps": [step("out"), step("in")], "payloads": ['{"n":1}', '{"n":2}']}
