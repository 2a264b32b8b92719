"""Metered ingest from outside: the RESP face, webhooks, and bad input over HTTP.

Each test has an organisation of its own on one server; the server is in the time zone's present, so
what depends on the calendar is tested in crates/services (period.rs, org.rs).
"""

import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import pathlib
import sqlite3
import ssl
import sys
import tempfile
import threading
import time
import uuid

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import invariants  # noqa: E402
import server as harness  # noqa: E402

ROOT = "fbroot_test"


class Server(invariants.Forebay):
    def __init__(self, folder, mode="group", *more):
        super().__init__(folder, mode)
        self.more = ["--quota-root-key", ROOT, "--quota-webhook-hosts", "127.0.0.1", *more]


@contextlib.contextmanager
def started(folder, mode="group", *more):
    server = Server(folder, mode, *more)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory() as folder, started(folder) as server:
        yield server


@pytest.fixture(scope="module")
def resp(server):
    client = redis.Redis(port=server.resp, decode_responses=True)
    yield client
    client.close()


class Org:
    """An organisation with a key that may do everything."""

    def __init__(self, server, **plan):
        self.server, self.name = server, "o" + uuid.uuid4().hex[:12]
        status, _, _ = self.root("PUT", "/quota", plan)
        assert status == 201
        self.key_id, self.key = self.make_key(scopes=["ingest", "read", "manage"])

    def root(self, method, path, body=None):
        return self.server.call(method, f"/v1/orgs/{self.name}{path}", body, ROOT)

    def make_key(self, **new):
        status, key, _ = self.root("POST", "/keys", new)
        assert status == 201, key
        return key["id"], key["secret"]

    def send(self, body, key=None, path="/v1/events", **headers):
        return self.server.call("POST", path, body, key or self.key, **headers)

    def used(self):
        return self.server.call("GET", "/v1/quota", None, self.key)[1]["usage"]["used"]


# The RESP face.


def test_resp_and_http_are_one_state(server, resp):
    org = Org(server, limit=10)
    assert resp.execute_command("QUOTA.GET", org.name)[:3] == [0, 10, 10]
    answer = json.loads(resp.execute_command("QUOTA.INGEST", org.key, '{"a":1}'))
    assert (answer["accepted"], answer["usage"]["used"]) == (1, 1)
    assert org.send({"b": 2})[1]["usage"]["used"] == 2
    assert resp.execute_command("QUOTA.GET", org.name)[:3] == [2, 10, 8]
    [name] = [key for key in resp.scan_iter("quota:*") if org.name in key]
    assert resp.get(name) == "2"
    assert resp.execute_command("QUOTA.ADJUST", org.name, -1, "why-1", "a gift")[0] == 1
    assert resp.execute_command("QUOTA.ADJUST", org.name, -1, "why-1", "a gift")[0] == 1
    assert org.used() == 1
    assert resp.execute_command("QUOTA.SET", org.name, '{"limit": 3}') in (True, "OK")
    assert resp.execute_command("QUOTA.FLUSH") in (True, "OK")
    whole = json.loads(resp.execute_command("QUOTA.GET", org.name, "JSON"))
    assert (whole["plan"]["limit"], whole["usage"]["used"]) == (3, 1)


def test_resp_admits_the_limit_and_says_until_when(server, resp):
    org = Org(server, limit=3)
    for _ in range(3):
        resp.execute_command("QUOTA.INGEST", org.key, "{}")
    with pytest.raises(redis.ResponseError, match="^QUOTAEXCEEDED the month limit.*retry after"):
        resp.execute_command("QUOTA.INGEST", org.key, "{}")
    assert org.send({})[0] == 429
    assert resp.execute_command("QUOTA.GET", org.name)[:3] == [3, 3, 0]


def test_resp_idempotency_and_options(server, resp):
    org = Org(server)
    send = lambda *words: resp.execute_command("QUOTA.INGEST", org.key, *words)  # noqa: E731
    first = send('{"a":1}', "IDEM", "x", "COST", 5)
    assert send('{"a":1}', "IDEM", "x", "COST", 5) == first
    with pytest.raises(redis.ResponseError, match="other content"):
        send('{"a":2}', "IDEM", "x", "COST", 5)
    assert json.loads(send('{"a":1}\n{"a":2}\n', "FORMAT", "NDJSON"))["accepted"] == 2
    assert org.used() == 7
    for words in [
        ("{",), ("{}", "COST", -1), ("{}", "FORMAT", "XML"), ("{}", "IDEM"), ("{}", "A", "b"),
    ]:
        with pytest.raises(redis.ResponseError):
            send(*words)
    with pytest.raises(redis.ResponseError, match="nobody knows"):
        resp.execute_command("QUOTA.INGEST", "fb_wrong", "{}")
    with pytest.raises(redis.ResponseError, match="no organisation"):
        resp.execute_command("QUOTA.GET", "nobody")
    assert org.used() == 7


def test_resp_in_a_pipeline_and_not_in_a_transaction(server, resp):
    org = Org(server)
    pipeline = resp.pipeline(transaction=False)
    for number in range(50):
        pipeline.set("x", number)
        pipeline.execute_command("QUOTA.INGEST", org.key, "{}")
        pipeline.execute_command("QUOTA.GET", org.name)
    answers = pipeline.execute()
    assert [answer[0] for answer in answers[2::3]] == list(range(1, 51))
    with pytest.raises(redis.ResponseError):
        resp.pipeline().execute_command("QUOTA.GET", org.name).execute()


def test_flush_waits_for_the_database(tmp_path):
    with started(tmp_path, "journal") as server, redis.Redis(port=server.resp) as resp:
        org = Org(server)
        for round_number in range(1, 6):
            pipeline = resp.pipeline(transaction=False)
            for _ in range(100):
                pipeline.execute_command("QUOTA.INGEST", org.key, "{}")
            pipeline.execute()
            resp.execute_command("QUOTA.FLUSH")
            rows = sqlite3.connect(tmp_path / "forebay.db").execute(
                "SELECT COUNT(*) FROM quota_record"
            )
            assert rows.fetchone() == (100 * round_number,)


# A database that does not do what it should.


def test_a_database_that_is_locked(tmp_path):
    with started(tmp_path, "group", "--quota-wait-ms", "500") as server:
        org = Org(server)
        assert org.send({})[0] == 200
        other = sqlite3.connect(tmp_path / "forebay.db", isolation_level=None, timeout=20)
        other.execute("BEGIN IMMEDIATE")
        began, answers = time.monotonic(), []
        ask = lambda: answers.append(org.send({}))  # noqa: E731
        threads = [threading.Thread(target=ask) for _ in range(4)]
        [thread.start() for thread in threads]
        # SQLite's patience is in sleeps, which take longer on a busy machine.
        while not answers and time.monotonic() - began < 12:
            time.sleep(0.1)
        other.execute("ROLLBACK")
        [thread.join() for thread in threads]
        assert time.monotonic() - began < 15
        accepted = sum(status == 200 for status, _, _ in answers)
        refused = [headers for status, _, headers in answers if status == 503]
        assert accepted + len(refused) == 4 and refused
        assert all(int(headers["retry-after"]) > 0 for headers in refused)
        assert org.send({})[0] == 200
        assert org.used() == accepted + 2
        rows = other.execute("SELECT COUNT(*), SUM(cost) FROM quota_record").fetchone()
        assert rows == (accepted + 2, accepted + 2)
        report = server.call("GET", "/v1/verify", None, ROOT)[1]
        assert report["differences"] == []


# Webhooks.


class Receiver:
    """Takes what webhooks send; answers with the statuses given, the last one for ever."""

    def __init__(self, *statuses, certificates=None):
        receiver = self
        self.got, self.statuses = [], list(statuses)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((dict(self.headers), body))
                left = receiver.statuses
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{certificates}/server.crt", f"{certificates}/server.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        scheme = "https" if certificates else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/hook"

    def wait(self, count, seconds=15):
        until = time.monotonic() + seconds
        while len(self.got) < count and time.monotonic() < until:
            time.sleep(0.02)
        assert len(self.got) >= count, f"{len(self.got)} of {count} came"
        return self.got


def check_signature(secret, headers, body):
    headers = {name.lower(): value for name, value in headers.items()}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    want = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{want}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    return headers["webhook-id"]


def test_thresholds_are_told_once_and_signed(server):
    receiver = Receiver(204)
    org = Org(server, limit=10, thresholds=[50, 100])
    status, hook, _ = org.root("POST", "/webhooks", {"url": receiver.url})
    assert status == 201
    org.send([{}] * 4)
    org.send([{}] * 4)
    org.send([{}] * 2)
    receiver.wait(2)
    time.sleep(1.5)
    told = []
    for headers, body in receiver.got:
        check_signature(hook["secret"], headers, body)
        message = json.loads(body)
        assert message["type"] == "quota.threshold" and message["data"]["org"] == org.name
        told.append(message["data"]["percent"])
    assert sorted(told) == [50, 100]
    log = org.root("GET", "/deliveries")[1]
    assert {line["state"] for line in log} == {"delivered"}
    lines = server.call("GET", f"/v1/audit?org={org.name}", None, ROOT)[1]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("threshold") == 2


def test_deliveries_come_again_under_the_same_id(server):
    receiver = Receiver(500, 200)
    org = Org(server)
    _, hook, _ = org.root("POST", "/webhooks", {"url": receiver.url})
    assert org.root("POST", f"/webhooks/{hook['id']}/test")[0] == 202
    ids = {check_signature(hook["secret"], *message) for message in receiver.wait(2)}
    assert len(ids) == 1
    until = time.monotonic() + 5
    while org.root("GET", "/deliveries")[1][0]["state"] != "delivered":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert org.root("GET", "/deliveries")[1][0]["tries"] == 2


def test_a_secret_is_changed_while_receivers_know_the_old_one(server):
    receiver = Receiver(204)
    org = Org(server)
    _, hook, _ = org.root("POST", "/webhooks", {"url": receiver.url})
    status, fresh, _ = org.root("POST", f"/webhooks/{hook['id']}/secret", {})
    assert status == 200 and fresh["secret"] != hook["secret"] and fresh["old_until"]
    org.root("POST", f"/webhooks/{hook['id']}/test")
    headers, body = receiver.wait(1)[0]
    names = {name.lower(): name for name in headers}
    signatures = headers[names["webhook-signature"]].split(" ")
    assert len(signatures) == 2
    for secret, signature in zip([fresh["secret"], hook["secret"]], signatures):
        check_signature(secret, headers | {names["webhook-signature"]: signature}, body)
    assert org.root("POST", "/webhooks/none/secret", {})[0] == 404
    assert org.root("POST", f"/webhooks/{hook['id']}/secret", {"secret": "short"})[0] == 400


def test_webhooks_are_called_over_tls(tmp_path, monkeypatch):
    certificates, home = tmp_path / "certificates", tmp_path / "home"
    certificates.mkdir()
    home.mkdir()
    harness.make_certificates(certificates)
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificates}/ca.crt")
    with started(str(home)) as server:
        receiver, org = Receiver(204, certificates=certificates), Org(server)
        _, hook, _ = org.root("POST", "/webhooks", {"url": receiver.url})
        org.root("POST", f"/webhooks/{hook['id']}/test")
        check_signature(hook["secret"], *receiver.wait(1)[0])


def test_an_endpoint_that_is_gone_is_disabled(server):
    receiver = Receiver(410)
    org = Org(server)
    _, hook, _ = org.root("POST", "/webhooks", {"url": receiver.url})
    org.root("POST", f"/webhooks/{hook['id']}/test")
    receiver.wait(1)
    until = time.monotonic() + 5
    while org.root("GET", "/webhooks")[1][0]["enabled"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert org.root("DELETE", f"/webhooks/{hook['id']}")[0] == 204
    assert org.root("GET", "/webhooks")[1] == []


@pytest.mark.parametrize("url", [
    "http://10.0.0.1/", "http://169.254.169.254/", "http://[::1]/", "http://192.168.0.1:99/x",
    "ftp://example.org/", "nonsense", "", "/path",
])
def test_webhooks_that_are_refused(server, url):
    org = Org(server)
    assert org.root("POST", "/webhooks", {"url": url})[0] == 400
    assert org.root("POST", "/webhooks", {"url": "http://127.0.0.1/", "secret": "short"})[0] == 400


# Bad input.


def test_keys_that_may_not(server):
    org = Org(server)
    for key, status in [("fb_unknown", 401), ("", 401)]:
        assert server.call("POST", "/v1/events", {}, key)[0] == status
    assert server.call("POST", "/v1/events", {}, None)[0] == 401
    _, reader = org.make_key(scopes=["read"])
    assert org.send({}, reader)[0] == 403
    _, old = org.make_key(expires_at="2020-01-01T00:00:00Z")
    assert org.send({}, old)[0] == 403
    key_id, key = org.make_key()
    assert org.send({}, key)[0] == 200
    assert org.root("DELETE", f"/keys/{key_id}")[0] == 204
    assert org.send({}, key)[0] == 403
    other = Org(server)
    assert server.call("GET", f"/v1/orgs/{org.name}/quota", None, other.key)[0] == 403
    assert org.used() == 1


def raw(server, org, body, kind="application/json", path="/v1/events", **headers):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    try:
        all_headers = {"authorization": f"Bearer {org.key}", "content-type": kind, **headers}
        connection.request("POST", path, body, all_headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_bodies_that_make_no_sense(server):
    org = Org(server, limit=100)
    for body, kind, status in [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/plain", 400),
        (b"[1" + b",1" * 1000 + b"]", "application/json", 413),
        (b'"' + b"x" * (1 << 20) + b'"', "application/json", 413),
        (b'{"specversion":"1.0"}', "application/cloudevents+json", 400),
        (b"[" * 100_000, "application/json", 400),
    ]:
        found, problem = raw(server, org, body, kind)
        assert (found, problem["status"]) == (status, status), (body[:40], problem)
    for cost in ["-1", "1.5", "99999999999999999999"]:
        assert raw(server, org, b"{}", path=f"/v1/events?cost={cost}")[0] == 400
    negative = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "cost": -5}
    assert raw(server, org, json.dumps(negative), "application/cloudevents+json")[0] == 400
    lines = b'{"a":1}\n{bad\n{"b":2}\n'
    status, answer = raw(server, org, lines, "application/x-ndjson")
    assert (status, answer["accepted"], answer["rejected"][0]["index"]) == (200, 2, 1)
    assert org.used() == 2


def test_idempotency_keys(server):
    org = Org(server)
    status, first, headers = org.send({"a": 1}, idempotency_key='"k"')
    again_status, again, again_headers = org.send({"a": 1}, idempotency_key='"k"')
    assert (again_status, again) == (status, first) and "idempotency-replayed" not in headers
    assert again_headers["idempotency-replayed"] == "true"
    assert org.send({"a": 2}, idempotency_key='"k"')[0] == 422
    for wrong in ['""', '"' + "x" * 300 + '"', '"open']:
        assert org.send({"a": 1}, idempotency_key=wrong)[0] == 400
    assert org.used() == 1


def test_one_of_many_at_once_with_one_idempotency_key(server):
    org = Org(server)
    found = []
    send = lambda: found.append(org.send({"a": 1}, idempotency_key='"k"')[0])  # noqa: E731
    threads = [threading.Thread(target=send) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert set(found) <= {200, 409} and 200 in found
    assert org.used() == 1


def test_plans_that_make_no_sense(server):
    org = Org(server)
    for plan in [{"limit": -1}, {"limit": 1 << 60}, {"tz": "Mars/Base"}, {"anchor_day": 0},
                 {"anchor_day": 32}, {"period": "fortnight"}, {"burst": {"rate": 0}}, {"x": 1},
                 {"costs": {"a": -1}}, {"thresholds": [0]}, {"thresholds": [1] * 11}]:
        assert org.root("PUT", "/quota", plan)[0] == 400, plan
    for query in ["from=yesterday", "window=eon", "tz=Mars/Base", "group_by=colour",
                  "from=2026-01-01T00:00:00Z&to=2020-01-01T00:00:00Z"]:
        assert org.root("GET", f"/usage?{query}")[0] == 400, query


def test_soft_and_dry_run_refuse_nothing(server):
    for word in ["soft", "dry_run"]:
        org = Org(server, limit=1, **{word: True})
        answers = [org.send({}) for _ in range(3)]
        assert [status for status, _, _ in answers] == [200] * 3
        assert "over_limit" not in answers[0][1]["usage"]
        assert answers[2][1]["usage"]["over_limit"] is True
        assert org.used() == 3


def test_metrics_have_bounded_labels(server):
    org = Org(server, limit=1)
    org.send({}), org.send({})
    status, page, _ = server.call("GET", "/metrics")
    page = page.decode()
    assert status == 200 and org.name not in page
    ours = [line for line in page.splitlines() if line.startswith("forebay_quota")]
    lines = dict(line.rsplit(" ", 1) for line in ours)
    assert float(lines['forebay_quota_requests_total{result="over_quota"}']) >= 1
    assert float(lines['forebay_quota_requests_total{result="accepted"}']) >= 1
    assert float(lines["forebay_quota_database_up"]) == 1
