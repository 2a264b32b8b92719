"""How participants are called beyond plain HTTP: https, gRPC's door, traces; and steps on the SQL
databases that are not embedded."""

import http.server
import ssl
import subprocess
import sys
import pathlib
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import databases  # noqa: E402 (found by the line above)
from conftest import Api, await_http  # noqa: E402
from server import Server, free_port, make_certificates  # noqa: E402

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# ---- https ----------------------------------------------------------------------------------

class Secure:
    """A participant over TLS, whose certificate a test authority has signed."""

    def __init__(self, folder):
        make_certificates(folder)
        self.paths = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.paths.append(self.path.partition("?")[0])
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    participant = Secure(folder)
    participant.folder = folder
    yield participant
    participant.server.shutdown()


@pytest.fixture(scope="module")
def trusting(secure):
    port = free_port()
    options = {"saga": "yes", "http-port": port, "saga-ca-cert-file": secure.folder / "ca.crt",
               "saga-retry-seconds": 1}
    with Server(options=options):
        await_http(port)
        yield Api(port)


def secured(secure, host="localhost"):
    return {"trans_type": "saga", "steps": [
        {"action": f"https://{host}:{secure.port}/{word}", "compensate": ""}
        for word in ["one", "two"]], "payloads": ["{}", "{}"]}


def trouble(api, gid, words, seconds=15):
    """Waits for an attempt whose text has all the words."""
    until = time.monotonic() + seconds
    while True:
        timeline = str(api.ask("GET", f"/v1/sagas/{gid}")[1].get("timeline"))
        if all(word in timeline for word in words):
            return
        assert time.monotonic() < until, timeline
        time.sleep(0.05)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_https_branches(secure, trusting, host):
    gid, before = trusting.gid(), len(secure.paths)
    status, _ = trusting.dtm("submit", secured(secure, host) | {"gid": gid})
    assert status == 200
    trusting.await_status(gid, "succeed", seconds=20)
    assert secure.paths[before:] == ["/one", "/two"]


def test_https_needs_a_certificate_that_is_valid(api, secure, gid):
    """`api`'s server knows the system's roots only: nothing is sent, and it is tried again."""
    before = len(secure.paths)
    assert api.dtm("submit", secured(secure) | {"gid": gid})[0] == 200
    trouble(api, gid, ["certificate"])
    assert secure.paths[before:] == []
    assert api.ask("POST", f"/v1/sagas/{gid}:stop", {})[0] == 200


def test_https_is_guarded_like_http(trusting):
    gid = trusting.gid()
    body = {"gid": gid, "trans_type": "saga", "payloads": ["{}"],
            "steps": [{"action": "https://169.254.169.254/latest"}]}
    assert trusting.dtm("submit", body)[0] == 200
    trouble(trusting, gid, ["may not be called"])
    assert trusting.ask("POST", f"/v1/sagas/{gid}:stop", {})[0] == 200


def test_a_file_without_certificates_is_refused(tmp_path):
    (tmp_path / "empty.pem").write_text("nothing\n")
    binary = Server().command()[0]
    for file in ["empty.pem", "missing.pem"]:
        done = subprocess.run(
            [binary, "--port", "0", "--dir", str(tmp_path), "--saga", "yes", "--http-port", "0",
             "--saga-ca-cert-file", str(tmp_path / file)], capture_output=True, text=True,
            timeout=60)
        assert done.returncode != 0 and file in done.stdout + done.stderr


# ---- gRPC: what dtm's client cannot show (tests/go has the rest) ------------------------------

def grpc(port, path, message=b"", *arguments, kind="application/grpc"):
    """A unary call by curl: the headers and trailers as text, the message."""
    framed = b"\0" + len(message).to_bytes(4, "big") + message
    done = subprocess.run(
        ["curl", "-s", "--max-time", "30", "--http2-prior-knowledge", "-D", "-", "--data-binary",
         "@-", "-H", f"content-type: {kind}", "-H", "te: trailers", *arguments,
         f"http://127.0.0.1:{port}{path}"], input=framed, capture_output=True)
    assert done.returncode == 0, done
    return done.stdout.decode(errors="replace")


def test_grpc_asks_for_the_key():
    port, http_port = free_port(), free_port()
    options = {"saga": "yes", "http-port": http_port, "saga-grpc-port": port,
               "saga-api-key": "secret"}
    with Server(options=options):
        await_http(http_port)
        for header in [[], ["-H", "x-api-key: Secret"], ["-H", "authorization: Bearer secre"]]:
            assert "grpc-status: 16" in grpc(port, "/dtmgimp.Dtm/NewGid", b"", *header)
        for header in ["x-api-key: secret", "authorization: Bearer secret"]:
            answer = grpc(port, "/dtmgimp.Dtm/NewGid", b"", "-H", header)
            assert "grpc-status: 0" in answer, answer
        key = ["-H", "x-api-key: secret"]
        assert "grpc-status: 13" in grpc(port, "/dtmgimp.Dtm/Submit", b"\x0a\xff", *key)
        assert "grpc-status: 12" in grpc(port, "/other.Service/NewGid", b"", *key)
        assert "HTTP/2 415" in grpc(port, "/dtmgimp.Dtm/NewGid", b"", *key, kind="text/plain")
        lines = Api(http_port).ask("GET", "/api/metrics", None, {"x-api-key": "secret"})[1]
        lines = lines.splitlines()
        for line in ['dtm_server_process_total{type="grpc",api="newgid",status="ok"} 2',
                     'dtm_server_process_total{type="grpc",api="newgid",status="fail"} 4',
                     'dtm_server_process_total{type="grpc",api="submit",status="fail"} 1']:
            assert line in lines, [known for known in lines if "grpc" in known]


def test_grpc_is_off_unless_asked_for(server):
    text = server.log_path.read_text()
    assert "(HTTP)" in text and "(gRPC)" not in text


# ---- metrics --------------------------------------------------------------------------------

def test_requests_under_dtms_names(api):
    def count(line):
        rows = api.ask("GET", "/api/metrics")[1].splitlines()
        found = [row for row in rows if row.startswith(line + " ")]
        return float(found[0].split()[-1]) if found else 0
    lines = ['dtm_server_process_total{type="http",api="newgid",status="ok"}',
             'dtm_server_process_total{type="http",api="query",status="fail"}',
             'dtm_server_process_total{type="http",api="other",status="fail"}',
             'dtm_server_response_duration_count{type="http",api="newgid"}',
             'dtm_server_response_duration_bucket{type="http",api="newgid",le="+Inf"}']
    before = [count(line) for line in lines]
    api.dtm("newGid")
    api.dtm("query", gid="")
    api.dtm("whatever/is/written/here")
    assert [count(line) - old for line, old in zip(lines, before)] == [1, 1, 1, 1, 1]
    text = api.ask("GET", "/api/metrics")[1]
    assert "# TYPE dtm_server_response_duration histogram" in text
    assert "# TYPE dtm_transaction_handled_duration histogram" in text
    assert 'dtm_server_info{gin_version="none"' in text


# ---- traces ---------------------------------------------------------------------------------

def test_each_call_has_its_own_span(api, busi, saga, gid):
    busi.script(gid, "/in", 500)
    body = saga | {"wait_result": False}
    assert api.ask("POST", "/api/dtmsvr/submit", body, {"traceparent": TRACE})[0] == 200
    api.await_status(gid, "succeed", seconds=20)
    sent = [call["headers"]["traceparent"] for call in busi.of(gid)]
    assert len(sent) == 3 and len({TRACE, *sent}) == 4, sent
    for trace in sent:
        assert trace[:36] == TRACE[:36] and trace[52:] == TRACE[52:], trace
        assert int(trace[36:52], 16) != 0


@pytest.mark.parametrize("trace", ["", "nonsense", TRACE.upper(), TRACE[:-1], "ff" + TRACE[2:]])
def test_what_is_no_trace_is_not_passed_on(api, busi, saga, gid, trace):
    assert api.ask("POST", "/api/dtmsvr/submit", saga, {"traceparent": trace})[0] == 200
    assert all("traceparent" not in call["headers"] for call in busi.of(gid))


# ---- Steps on MariaDB and PostgreSQL --------------------------------------------------------

@pytest.fixture(scope="module", params=[databases.MariaDb, databases.Postgres],
                ids=["MariaDB", "PostgreSQL"])
def outside(request):
    """A server whose SQL database is not embedded, and that database with accounts."""
    with request.param() as database:
        [address] = [value for name, value in database.environment().items()
                     if name in ("FOREBAY_MYSQL", "FOREBAY_POSTGRES")]
        database.sql("CREATE TABLE account (id varchar(60) PRIMARY KEY, amount bigint NOT NULL, "
                     "CHECK (amount >= 0))", database="forebay")
        port = free_port()
        options = {"saga": "yes", "http-port": port, "saga-local-steps": "yes", "sql": address,
                   "saga-retry-seconds": 1}
        with Server(options=options):
            await_http(port)
            yield Api(port), lambda text: database.sql(text, database="forebay")


def moved(api, gid, amount, **more):
    sql = "UPDATE account SET amount = amount + ? WHERE id = ?"
    def step(change, name):
        return {"action": {"sql": sql, "args": [change, f"{name}{gid}"], "rows": 1},
                "compensate": {"sql": sql, "args": [-change, f"{name}{gid}"], "rows": 1}}
    body = {"gid": gid, "wait": True, "steps": [step(-amount, "a"), step(amount, "b")]} | more
    return api.ask("POST", "/v1/sagas", body)[1]


def test_steps_on_other_databases(outside):
    api, sql = outside
    gid = api.gid()
    sql(f"INSERT INTO account VALUES ('a{gid}', 100), ('b{gid}', 0)")
    body = moved(api, gid, 30)
    assert body["status"] == "succeed", body
    amounts = f"SELECT amount FROM account WHERE id IN ('a{gid}', 'b{gid}') ORDER BY id"
    assert [row[0] for row in sql(amounts)] == ["70", "30"]
    again, lost = api.gid(), api.gid()
    sql(f"INSERT INTO account VALUES ('a{again}', 10), ('b{again}', 0), ('a{lost}', 10)")
    assert moved(api, again, 11)["status"] == "failed", "the database refuses it"
    body = moved(api, lost, 5)
    assert body["status"] == "failed", "nobody has the second account"
    amounts = f"SELECT amount FROM account WHERE id = 'a{lost}'"
    assert sql(amounts) == [["10"]], body


def test_many_sagas_share_commits_and_conserve_money(outside):
    api, sql = outside
    gids = [api.gid() for _ in range(60)]
    rows = ", ".join(f"('{name}{gid}', 20)" for gid in gids for name in "ab")
    sql(f"INSERT INTO account VALUES {rows}")
    for place, gid in enumerate(gids):
        # Every third wants more than there is.
        moved(api, gid, 21 if place % 3 == 0 else 7, wait=False)
    for place, gid in enumerate(gids):
        api.await_status(gid, "failed" if place % 3 == 0 else "succeed", seconds=60)
    for place, gid in enumerate(gids):
        amounts = f"SELECT amount FROM account WHERE id IN ('a{gid}', 'b{gid}') ORDER BY id"
        wanted = ["20", "20"] if place % 3 == 0 else ["13", "27"]
        assert [row[0] for row in sql(amounts)] == wanted
