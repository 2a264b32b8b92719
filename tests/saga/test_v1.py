"""Our own API under /v1/sagas, and the steps that the server runs itself."""

import sqlite3
import time

import pytest
import redis

from conftest import Api, Server, await_http, free_port


@pytest.fixture
def keys(server):
    client = redis.Redis(server.host, server.port, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def rows(server):
    """The SQL database, with one table of accounts; a function that runs SQL on it."""
    connection = sqlite3.connect(server.folder / "forebay.db", isolation_level=None, timeout=10)
    connection.execute("CREATE TABLE IF NOT EXISTS account "
                       "(id text PRIMARY KEY, amount integer CHECK (amount >= 0))")
    yield lambda sql, *values: connection.execute(sql, values).fetchall()
    connection.close()


def post(api, steps, **fields):
    return api.ask("POST", "/v1/sagas", {"steps": steps, "wait": True} | fields)


def act(api, gid, verb, **body):
    return api.ask("POST", f"/v1/sagas/{gid}:{verb}", body)


# ---- The API --------------------------------------------------------------------------------

def test_submit_show_and_again(api, busi, gid):
    steps = [{"action": f"{busi.url}/a", "compensate": f"{busi.url}/b", "payload": {"n": 1}}]
    status, body = post(api, steps, gid=gid, name="transfer")
    assert (status, body["status"], body["name"]) == (200, "succeed", "transfer")
    assert [entry["op"] for entry in body["timeline"]] == ["action"]
    assert post(api, steps, gid=gid)[0] == 200, "the same again is the same saga"
    assert len(busi.of(gid)) == 1
    assert post(api, [{"action": "http://other"}], gid=gid)[0] == 422
    assert api.ask("GET", f"/v1/sagas/{gid}")[1]["gid"] == gid
    assert api.ask("GET", "/v1/sagas/nobody")[0] == 404
    headers = {"idempotency-key": gid + "k"}
    status, body = api.ask("POST", "/v1/sagas", {"steps": []}, headers)
    assert (status, body["gid"]) == (201, gid + "k")


def test_trace_context_goes_on(api, busi, gid):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = {"gid": gid, "steps": [{"action": f"{busi.url}/a"}], "wait": True}
    api.ask("POST", "/v1/sagas", body, {"traceparent": trace})
    sent = busi.of(gid)[0]["headers"]["traceparent"]
    assert sent.startswith("00-0af7651916cd43dd8448eb211c80319c-") and sent.endswith("-01")


@pytest.mark.parametrize("body", [
    "{", {"steps": "no"}, {"steps": [], "durability": "often"}, {"steps": [{"action": 5}]},
    {"steps": [{"action": {"what": 1}}]}, {"steps": [{"action": {"sql": "DROP TABLE account"}}]},
    {"steps": [{"action": {"redis": []}}]}, {"steps": [{"depends_on": [4]}]},
    {"steps": [], "timeout_s": -1},
])
def test_bad_requests(api, body):
    status, problem = api.ask("POST", "/v1/sagas", body)
    assert status == 400 and problem["detail"], problem


def test_dead_letters_verbs_and_bulk(api, busi):
    name = f"bulk-{api.gid()}"
    gids = [api.gid() for _ in range(3)]
    for gid in gids:
        busi.script(gid, "/a", *[500] * 50)
        post(api, [{"action": f"{busi.url}/a"}], gid=gid, name=name, wait=False,
             retry_interval_s=60)
    time.sleep(0.3)
    assert act(api, gids[0], "pause")[1]["hold"] == "paused"
    listed = api.ask("GET", f"/v1/sagas?name={name}&hold=paused")[1]["sagas"]
    assert [saga["gid"] for saga in listed] == [gids[0]]
    assert act(api, gids[0], "resume")[1].get("hold") is None
    assert act(api, gids[0], "dance")[0] == 400
    assert act(api, "nobody", "retry")[0] == 404
    assert act(api, gids[0], "skip", branch=77)[0] == 409
    bulk = {"filter": {"name": name, "status": "submitted"}, "verb": "cancel"}
    status, body = api.ask("POST", "/v1/sagas:bulk", bulk | {"dry_run": True})
    assert (status, body) == (200, {"matched": 3, "dry_run": True})
    status, body = api.ask("POST", "/v1/sagas:bulk", bulk)
    assert body["matched"] == 3 and {r["result"] for r in body["results"]} == {"done"}
    for gid in gids:
        api.await_status(gid, "failed")
        assert act(api, gid, "retry")[0] == 409
    dead = api.gid()
    busi.script(dead, "/a", *[500] * 4)
    post(api, [{"action": f"{busi.url}/a"}], gid=dead, wait=False, retry_interval_s=1)
    until = time.monotonic() + 12
    while dead not in [s["gid"] for s in api.ask("GET", "/v1/dead-letters")[1]["sagas"]]:
        assert time.monotonic() < until
        time.sleep(0.1)
    act(api, dead, "retry", by="me")
    api.await_status(dead, "succeed")
    assert "retry by me" in str(api.ask("GET", f"/v1/sagas/{dead}")[1]["timeline"])


def test_every_route_asks_for_the_key():
    port = free_port()
    options = {"saga": "yes", "http-port": port, "saga-api-key": "secret"}
    with Server(options=options):
        await_http(port)
        api = Api(port)
        for method, path in [("GET", "/api/dtmsvr/version"), ("POST", "/api/json-rpc"),
                             ("GET", "/api/metrics"), ("GET", "/v1/sagas"),
                             ("POST", "/v1/sagas:bulk"), ("GET", "/v1/dead-letters"),
                             ("DELETE", "/api/dtmsvr/topic/x")]:
            for headers in [{}, {"x-api-key": "Secret"}, {"authorization": "Bearer secre"}]:
                assert api.ask(method, path, None, headers)[0] == 401, (path, headers)
        for headers in [{"x-api-key": "secret"}, {"authorization": "Bearer secret"}]:
            assert api.ask("GET", "/v1/sagas", None, headers)[0] == 200
        steps = [{"action": {"redis": ["SET", "a", "b"]}}]
        status, problem = api.ask("POST", "/v1/sagas", {"steps": steps}, {"x-api-key": "secret"})
        assert status == 400 and "saga-local-steps" in problem["detail"], "off unless asked for"


# ---- Steps on the keyspace ------------------------------------------------------------------

LUA = """local left = tonumber(redis.call('GET', KEYS[1])) - tonumber(ARGV[1])
if left < 0 then return redis.error_reply('too little') end
redis.call('SET', KEYS[1], left)
return left"""


def test_commands_with_outputs(api, keys, gid):
    keys.mset({f"a:{gid}": 100, f"b:{gid}": 0})
    status, body = post(api, [
        {"action": {"redis": ["DECRBY", f"a:{gid}", "${payload.amount}"]},
         "compensate": {"redis": ["INCRBY", f"a:{gid}", "${payload.amount}"]},
         "payload": {"amount": 30}},
        {"action": {"redis": ["INCRBY", f"b:{gid}", 30]}},
        {"action": {"redis": ["SET", f"note:{gid}", "left ${01}, now ${02}, by ${gid}"]}},
    ], gid=gid)
    assert (status, body["status"]) == (200, "succeed"), body
    assert keys.mget(f"a:{gid}", f"b:{gid}") == ["70", "30"]
    assert keys.get(f"note:{gid}") == f"left 70, now 30, by {gid}"
    outputs = [b.get("output") for b in body["branches"] if b["op"] == "action"]
    assert outputs == ["70", "30", '"OK"']


def test_a_script_refuses_and_what_was_done_is_undone(api, keys, gid):
    keys.mset({f"a:{gid}": 10, f"b:{gid}": 0})
    steps = [
        {"action": {"redis": ["INCRBY", f"b:{gid}", 30]},
         "compensate": {"redis": ["DECRBY", f"b:{gid}", 30]}},
        {"action": {"lua": LUA, "keys": [f"a:{gid}"], "args": [30]},
         "compensate": {"redis": ["INCRBY", f"a:{gid}", 30]}},
    ]
    status, body = post(api, steps, gid=gid)
    assert body["status"] == "failed" and "too little" in body["reason"], body
    assert keys.mget(f"a:{gid}", f"b:{gid}") == ["10", "0"], "the second compensation did nothing"
    keys.set(f"a:{gid}", 50)
    assert post(api, steps, gid=gid + "2")[1]["status"] == "succeed"
    assert keys.mget(f"a:{gid}", f"b:{gid}") == ["20", "30"]


def test_an_error_and_a_missing_reference_refuse(api, keys, gid):
    keys.set(f"text:{gid}", "word")
    body = post(api, [{"action": {"redis": ["INCRBY", f"text:{gid}", 1]}}], gid=gid)[1]
    assert body["status"] == "failed" and "not an integer" in body["reason"]
    body = post(api, [{"action": {"redis": ["SET", "x", "${07.rows}"]}}], gid=gid + "2")[1]
    assert body["status"] == "failed" and "${07.rows}" in body["reason"]


def test_a_database_in_the_keyspace(api, keys, gid):
    name = f"db:{gid}"
    keys.execute_command("REDISQL.CREATE_DB", name)
    keys.execute_command("REDISQL.EXEC", name, "CREATE TABLE t (n int)")
    body = post(api, [
        {"action": {"redis": ["REDISQL.EXEC", name, "INSERT INTO t VALUES (5)"]},
         "compensate": {"redis": ["REDISQL.EXEC", name, "DELETE FROM t WHERE n = 5"]}},
        {"action": {"redis": ["NOSUCH"]}},
    ], gid=gid)[1]
    assert body["status"] == "failed", body
    assert keys.execute_command("REDISQL.EXEC", name, "SELECT count(*) FROM t") == [[0]]


# ---- Steps on the SQL database --------------------------------------------------------------

def move(gid, amount):
    sql = "UPDATE account SET amount = amount + ? WHERE id = ? RETURNING amount"
    return [
        {"action": {"sql": sql, "args": [-amount, f"a{gid}"], "rows": 1},
         "compensate": {"sql": sql, "args": [amount, f"a{gid}"], "rows": 1}},
        {"action": {"sql": sql, "args": ["${payload.amount}", f"b{gid}"], "rows": 1},
         "compensate": {"sql": sql, "args": [-amount, f"b{gid}"], "rows": 1},
         "payload": {"amount": amount}},
    ]


def amounts(rows, gid):
    found = rows("SELECT amount FROM account WHERE id IN (?, ?) ORDER BY id", f"a{gid}", f"b{gid}")
    return [amount for amount, in found]


def test_statements_with_outputs(api, keys, rows, gid):
    rows("INSERT INTO account VALUES (?, 100), (?, 0)", f"a{gid}", f"b{gid}")
    last = {"action": {"redis": ["SET", f"left:{gid}", "${01.rows.0.0}"]}}
    body = post(api, move(gid, 30) + [last], gid=gid)[1]
    assert body["status"] == "succeed", body
    assert amounts(rows, gid) == [70, 30] and keys.get(f"left:{gid}") == "70"


@pytest.mark.parametrize("amount, other, why", [
    (200, True, "CHECK"), (30, False, "0 rows instead of 1"),
])
def test_a_statement_refuses_and_what_was_done_is_undone(api, rows, gid, amount, other, why):
    rows("INSERT INTO account VALUES (?, 100)", f"a{gid}")
    if other:
        rows("INSERT INTO account VALUES (?, 0)", f"b{gid}")
    body = post(api, move(gid, amount), gid=gid)[1]
    assert body["status"] == "failed" and why in body["reason"], body
    assert amounts(rows, gid)[0] == 100 and sum(amounts(rows, gid)) == 100
    barrier = rows("SELECT branch_id, op, output FROM saga_barrier WHERE gid = ?", gid)
    failing = "01" if other else "02"
    assert (failing, "compensate", "-") in barrier, "it had nothing to undo, and is barred"


def test_mixed_steps_over_dtms_own_api(api, busi, keys, gid):
    keys.set(f"a:{gid}", 1)
    body = {"gid": gid, "trans_type": "saga", "wait_result": True,
            "custom_data": '{"outputs": true}',
            "steps": [{"action": f'redis:["INCR", "a:{gid}"]'},
                      {"action": busi.url + "/a?n=${01}"}],
            "payloads": ["", '{"n": "${01}", "text": "is ${01}"}']}
    assert api.dtm("submit", body)[0] == 200
    (call,) = busi.of(gid)
    assert (call["query"]["n"], call["body"]) == ("2", '{"n":2,"text":"is 2"}')


def test_outputs_of_http_branches(api, busi, keys, gid):
    busi.script(gid, "/a", (200, '{"order": {"id": 77}}'))
    body = post(api, [{"action": busi.url + "/a", "compensate": busi.url + "/undo"},
                      {"action": {"redis": ["SET", f"order:{gid}", "${01.order.id}"]}},
                      {"action": busi.url + "/b", "payload": {"id": "${01.order.id}"}}],
                gid=gid)[1]
    assert body["status"] == "succeed", body
    assert keys.get(f"order:{gid}") == "77" and busi.of(gid)[1]["body"] == '{"id":77}'


# ---- Who is told, and what is kept ----------------------------------------------------------

def hooks(busi, gid):
    return [call for call in busi.calls if call["path"] == "/hook" and gid in call["body"]]


def test_a_stream_and_a_webhook_tell_the_end(api, busi, keys, gid):
    busi.script(gid, "/a", (409, "no"))
    body = post(api, [{"action": f"{busi.url}/a"}], gid=gid, name="told")[1]
    assert body["status"] == "failed"
    until = time.monotonic() + 5
    while True:
        entries = [entry for _, entry in keys.xrevrange("ended", count=50) if entry["gid"] == gid]
        if entries and hooks(busi, gid):
            break
        assert time.monotonic() < until
        time.sleep(0.05)
    (entry,), (hook,) = entries, hooks(busi, gid)
    assert (entry["kind"], entry["status"], entry["name"]) == ("saga", "failed", "told")
    assert hook["method"] == "POST" and '"status":"failed"' in hook["body"]


def test_who_is_not_reached_is_given_a_pause(api, busi, keys):
    port = free_port()
    gids = [api.gid() for _ in range(40)]
    for gid in gids:
        post(api, [{"action": f"http://127.0.0.1:{port}/a"}], gid=gid, wait=False,
             retry_interval_s=60)
    time.sleep(1)
    tried = [len(api.ask("GET", f"/v1/sagas/{gid}")[1]["timeline"]) for gid in gids]
    assert 3 <= sum(tried) < 30, "after three failures the others are not called"
    for gid in gids:
        act(api, gid, "stop")


def test_what_is_forgotten_is_in_the_archive():
    port = free_port()
    options = {"saga": "yes", "http-port": port, "saga-archive": "yes", "saga-keep-seconds": 0}
    with Server(options=options) as server:
        await_http(port)
        api = Api(port)
        gids = [api.gid() for _ in range(20)]
        for gid in gids:
            post(api, [{"action": ""}], gid=gid)
        until = time.monotonic() + 8
        while api.status(gids[-1]) is not None:
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.3)
        connection = sqlite3.connect(server.folder / "forebay.db", timeout=10)
        kept = connection.execute("SELECT gid, status, detail FROM saga_archive").fetchall()
        connection.close()
        assert sorted(row[0] for row in kept) == sorted(gids)
        assert {row[1] for row in kept} == {"succeed"} and '"timeline"' in kept[0][2]
