"""dtm's HTTP API and JSON-RPC, endpoint by endpoint, option by option, status by status; what
dtm's own Go client cannot show because it hides it. The Go client's tests are in tests/go."""

import time

import pytest

SUCCESS = (200, {"dtm_result": "SUCCESS"})


def failure(answer):
    status, body = answer
    return status == 409 and body["dtm_result"] == "FAILURE" and "FAILURE" in body["message"]


# ---- Small ones -----------------------------------------------------------------------------

def test_version_gid_ping_metrics(api):
    status, body = api.dtm("version")
    assert status == 200 and body["version"]
    status, body = api.dtm("newGid")
    assert status == 200 and len(body["gid"]) == 22 and body["dtm_result"] == "SUCCESS"
    for method in ["GET", "POST"]:
        assert api.ask(method, "/api/ping") == (200, {"msg": "pong"})
    status, text = api.ask("GET", "/api/metrics")
    assert status == 200 and "# TYPE forebay_saga_transactions gauge" in text


def test_metrics_under_dtms_names(api, busi, saga, gid):
    def count(line):
        text = api.ask("GET", "/api/metrics")[1]
        found = [row for row in text.splitlines() if row.startswith(line)]
        return float(found[0].split()[-1]) if found else 0
    lines = ['dtm_transaction_process_total{model="saga",status="ok"}',
             'dtm_branch_process_total{model="saga",branchtype="action",status="ok"}',
             'dtm_transaction_handled_duration_count{model="saga"}']
    before = [count(line) for line in lines]
    assert api.dtm("submit", saga) == SUCCESS
    assert [count(line) - old for line, old in zip(lines, before)] == [1, 2, 1]


def test_what_is_no_route_is_not_found(api):
    for method, path in [("GET", "/api/dtmsvr/nothing"), ("POST", "/api/dtmsvr/nothing"),
                         ("GET", "/api/nothing"), ("DELETE", "/api/dtmsvr/query")]:
        assert api.ask(method, path, "{}" if method == "POST" else None)[0] == 404, path


# ---- submit, prepare, abort: their requests -------------------------------------------------

@pytest.mark.parametrize("body, what", [
    ("{", "the request"),
    ({"gid": "", "trans_type": "saga"}, "gid"),
    ({"gid": "bad-1", "trans_type": "nonsense"}, "nonsense"),
    ({"gid": "bad-2", "trans_type": "saga", "steps": [{"action": ""}]}, "payloads"),
    ({"gid": "bad-3", "trans_type": "msg", "steps": [{"action": "topic://no-such-topic"}],
      "payloads": ["1"]}, "topic not found"),
    ({"gid": "bad-4", "trans_type": "saga", "retry_interval": -1}, "retry_interval"),
    ({"gid": "bad-5", "trans_type": "saga", "custom_data": '{"orders":{"0":[5]}}'}, "orders"),
])
def test_requests_that_make_no_sense(api, body, what):
    status, answer = api.dtm("submit", body)
    assert status == 500 and what in answer["message"], answer


def test_a_gid_loses_what_would_break_a_line(api, gid):
    assert api.dtm("submit", {"gid": f"{gid}\r\n;", "trans_type": "saga"}) == SUCCESS
    assert api.status(gid) == "succeed"


def test_prepare_twice_then_submit_then_neither(api, gid):
    body = {"gid": gid, "trans_type": "msg"}
    assert api.dtm("prepare", body) == SUCCESS
    assert api.dtm("prepare", body) == SUCCESS
    assert api.status(gid) == "prepared"
    assert api.dtm("submit", body | {"wait_result": True}) == SUCCESS
    assert api.status(gid) == "succeed"
    assert failure(api.dtm("prepare", body))
    assert failure(api.dtm("submit", body))


@pytest.mark.parametrize("kind, prepared, wanted", [
    ("saga", True, None), ("saga", False, None), ("workflow", True, None),
    ("msg", True, "failed"), ("tcc", True, "failed"), ("xa", True, "failed"),
])
def test_abort_by_kind(api, busi, gid, kind, prepared, wanted):
    body = {"gid": gid, "trans_type": kind}
    if kind == "saga" and not prepared:
        body |= {"steps": [{"action": f"{busi.url}/wait"}], "payloads": ["1"]}
        busi.script(gid, "/wait", 425, 425, 425, 425)
    assert api.dtm("prepare" if prepared else "submit", body) == SUCCESS
    answer = api.dtm("abort", body | {"wait_result": True})
    if wanted is None:
        assert failure(answer), answer
    else:
        assert answer == SUCCESS
        api.await_status(gid, wanted)


def test_abort_keeps_the_clients_reason(api, gid):
    body = {"gid": gid, "trans_type": "tcc"}
    api.dtm("prepare", body)
    api.dtm("abort", body | {"rollback_reason": "the client said so", "wait_result": True})
    assert api.state(gid)["transaction"]["rollback_reason"] == "the client said so"


def test_unknown_gids(api):
    for name in ["abort", "forceStop", "resetNextCronTime"]:
        status, body = api.dtm(name, {"gid": "nobody", "trans_type": "tcc"})
        assert status in (409, 500) and body["message"], (name, status)
    assert api.dtm("query", gid="nobody")[1] == {"transaction": None, "branches": []}
    assert api.dtm("query", gid="") == (500, {"message": "no gid specified"})


# ---- Branches: how they are called, and what their answers mean -----------------------------

def test_how_a_branch_is_called(api, busi, saga, gid):
    saga["payloads"] = ['{"n":1}', ""]
    saga["branch_headers"] = {"x-own": "mine"}
    saga["steps"][0]["action"] += "?own=1"
    assert api.dtm("submit", saga) == SUCCESS
    first, second = busi.of(gid)
    assert (first["method"], first["body"]) == ("POST", '{"n":1}')
    assert (second["method"], second["body"]) == ("GET", "")
    assert first["query"] == {"own": "1", "gid": gid, "trans_type": "saga", "branch_id": "01",
                              "op": "action"}
    assert first["headers"]["content-type"] == "application/json"
    assert first["headers"]["x-own"] == "mine"
    assert first["headers"]["idempotency-key"] == f"{gid}:01:action"


def test_old_clients_put_the_payload_into_the_step(api, busi, saga, gid):
    del saga["payloads"]
    saga["steps"] = [step | {"data": '"old"'} for step in saga["steps"]]
    assert api.dtm("submit", saga) == SUCCESS
    assert [call["body"] for call in busi.of(gid)] == ['"old"', '"old"']


@pytest.mark.parametrize("told, wanted", [
    (409, "failed"), ((200, "FAILURE"), "failed"), ((500, "a FAILURE within"), "failed"),
    (425, "succeed"), ((200, "ONGOING"), "succeed"), ((200, "FAILURE ONGOING"), "succeed"),
    (500, "succeed"), (404, "succeed"), ((302, "", {"location": "/elsewhere"}), "succeed"),
    (201, "succeed"),
])
def test_what_an_answer_means(api, busi, saga, gid, told, wanted):
    busi.script(gid, "/in", told)
    answer = api.dtm("submit", saga)
    assert failure(answer), answer
    api.await_status(gid, wanted)
    calls = busi.shown(gid)
    if wanted == "failed":
        assert calls == "/out:action /in:action /in-back:compensate /out-back:compensate"
    else:
        assert calls == "/out:action /in:action /in:action"


def test_the_reason_names_the_branch_and_its_answer(api, busi, saga, gid):
    busi.script(gid, "/in", (409, "too little money"))
    status, body = api.dtm("submit", saga)
    wanted = f"url:{busi.url}/in return failed: too little money FAILURE"
    assert (status, body["message"]) == (409, wanted)
    assert api.state(gid)["transaction"]["rollback_reason"] == wanted


def test_request_timeout_and_retry_interval(api, busi, saga, gid):
    busi.script(gid, "/out", 1.8)
    saga |= {"request_timeout": 1, "wait_result": False}
    assert api.dtm("submit", saga) == SUCCESS
    api.await_status(gid, "succeed")
    first, second = busi.of(gid)[:2]
    assert 1.7 < second["at"] - first["at"] < 2.6, "given up after 1 s, tried again 1 s later"


def test_retry_after_is_honoured(api, busi, saga, gid):
    busi.script(gid, "/out", (503, "", {"retry-after": "2"}))
    api.dtm("submit", saga)
    api.await_status(gid, "succeed")
    first, second = busi.of(gid)[:2]
    assert 1.9 < second["at"] - first["at"] < 3


def test_compensations_are_never_given_up_for_a_refusal(api, busi, saga, gid):
    busi.script(gid, "/in", 409)
    busi.script(gid, "/in-back", 409, 500)
    api.dtm("submit", saga)
    api.await_status(gid, "failed")
    assert busi.shown(gid).count("/in-back:compensate") == 3


def test_concurrent_messages(api, busi, gid):
    steps = [{"action": f"{busi.url}/{name}"} for name in "abc"]
    for name in "abc":
        busi.script(gid, f"/{name}", 0.4)
    began = time.monotonic()
    body = {"gid": gid, "trans_type": "msg", "steps": steps, "payloads": ["1"] * 3}
    assert api.dtm("submit", body | {"concurrent": True, "wait_result": True}) == SUCCESS
    assert time.monotonic() - began < 0.9
    assert len(busi.of(gid)) == 3


def test_xa_rolled_back(api, busi, gid):
    body = {"gid": gid, "trans_type": "xa"}
    api.dtm("prepare", body)
    for branch in ["01", "02"]:
        fields = {"gid": gid, "trans_type": "xa", "branch_id": branch, "url": f"{busi.url}/xa"}
        assert api.dtm("registerXaBranch", fields) == SUCCESS
    assert api.dtm("abort", body | {"wait_result": True}) == SUCCESS
    seen = [(c["query"]["branch_id"], c["query"]["op"], c["method"]) for c in busi.of(gid)]
    assert seen == [("01", "rollback", "POST"), ("02", "rollback", "POST")]


def test_register_branch_twice_is_one(api, busi, gid):
    api.dtm("prepare", {"gid": gid, "trans_type": "tcc"})
    fields = {"gid": gid, "trans_type": "tcc", "branch_id": "01", "data": "{}",
              "confirm": f"{busi.url}/ok", "cancel": f"{busi.url}/back"}
    for name in ["registerTccBranch", "registerBranch"]:
        assert api.dtm(name, fields) == SUCCESS
    assert api.dtm("submit", {"gid": gid, "trans_type": "tcc", "wait_result": True}) == SUCCESS
    assert busi.shown(gid) == "/ok:confirm"
    status, body = api.dtm("registerBranch", fields)
    assert (status, "prepared found" in body["message"]) == (409, True)
    assert api.dtm("registerBranch", fields | {"trans_type": "no"})[0] == 500


# ---- query, all -----------------------------------------------------------------------------

def test_the_fields_of_a_transaction_and_its_branches(api, busi, saga, gid):
    saga |= {"custom_data": '{"own":1}', "timeout_to_fail": 9, "request_timeout": 2,
             "retry_limit": 7}
    busi.script(gid, "/in", 409)
    api.dtm("submit", saga)
    state = api.state(gid)
    t = state["transaction"]
    wanted = {"gid": gid, "trans_type": "saga", "status": "failed", "steps": saga["steps"],
              "payloads": saga["payloads"], "custom_data": '{"own":1}', "protocol": "http",
              "timeout_to_fail": 9, "request_timeout": 2, "retry_interval": 1, "retry_limit": 7,
              "wait_result": True, "concurrent": False}
    assert {name: t.get(name) for name in wanted} == wanted
    for name in ["id", "create_time", "update_time", "rollback_time", "options"]:
        assert t[name], name
    seen = [(b["branch_id"], b["op"], b["status"]) for b in state["branches"]]
    assert seen == [("01", "compensate", "succeed"), ("01", "action", "succeed"),
                    ("02", "compensate", "succeed"), ("02", "action", "failed")]
    assert state["branches"][1]["url"] == saga["steps"][0]["action"]
    assert state["branches"][1]["bin_data"] == "eyJuIjoxfQ=="


def test_all_by_every_filter_and_in_pages(api):
    begin = int(time.time() * 1000) - 1
    gids = []
    for kind in ["saga", "msg", "saga"]:
        gids.append(api.gid())
        assert api.dtm("submit", {"gid": gids[-1], "trans_type": kind}) == SUCCESS
        time.sleep(0.005)
    end = int(time.time() * 1000) + 1

    def found(**query):
        body = api.dtm("all", createTimeStart=begin, createTimeEnd=end, **query)[1]
        return [t["gid"] for t in body["transactions"]], body["next_position"]
    assert found() == (gids[::-1], "")
    assert found(transType="msg")[0] == [gids[1]]
    assert found(status="succeed", transType="saga")[0] == [gids[2], gids[0]]
    assert found(status="prepared") == ([], "")
    assert found(status="nonsense") == ([], "")
    assert found(gid=gids[1]) == ([gids[1]], "")
    page, position = found(limit=2)
    assert page == gids[:0:-1] and position
    assert found(limit=2, position=position)[0] == [gids[0]]
    assert api.dtm("all", createTimeStart=end + 60_000)[1]["transactions"] == []
    assert api.dtm("all", createTimeStart="soon")[0] == 500


# ---- forceStop, resetNextCronTime, resetCronTime --------------------------------------------

def waiting(api, busi, saga, gid, seconds=60):
    busi.script(gid, "/out", 500)
    assert api.dtm("submit", saga | {"retry_interval": seconds, "wait_result": False}) == SUCCESS
    until = time.monotonic() + 5
    while "next_cron_time" not in api.state(gid)["transaction"] or not busi.of(gid):
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.1)


def test_reset_next_cron_time_makes_it_due(api, busi, saga, gid):
    waiting(api, busi, saga, gid)
    assert api.status(gid) == "submitted"
    assert api.dtm("resetNextCronTime", {"gid": gid}) == SUCCESS
    api.await_status(gid, "succeed")


def test_reset_cron_time_takes_those_that_are_far_off(api, busi, saga, gid):
    waiting(api, busi, saga, gid)
    assert api.dtm("resetCronTime", timeout=3600)[1]["succeed_count"] == 0
    status, body = api.dtm("resetCronTime", timeout=10, limit=100)
    assert status == 200 and body["succeed_count"] >= 1 and body["has_remaining"] is False
    api.await_status(gid, "succeed")


def test_force_stop(api, busi, saga, gid):
    waiting(api, busi, saga, gid)
    assert api.dtm("forceStop", {"gid": gid}) == SUCCESS
    assert api.status(gid) == "failed" and busi.shown(gid) == "/out:action"
    assert failure(api.dtm("forceStop", {"gid": gid}))


# ---- Topics and their store -----------------------------------------------------------------

def test_topics(api, busi, gid):
    topic = f"topic-{gid}"
    one, two = f"{busi.url}/one", f"{busi.url}/two"
    assert api.dtm("subscribe", topic="", url=one) == (500, {"message": "empty topic"})
    assert api.dtm("subscribe", topic=topic, url="") == (500, {"message": "empty url"})
    assert api.dtm("subscribe", topic=topic, url=one, remark="first") == SUCCESS
    assert api.dtm("subscribe", topic=topic, url=two) == SUCCESS
    assert api.dtm("subscribe", topic=topic, url=one) == (500, {"message": "this url exists"})
    _, body = api.dtm("queryKV", cat="topics", key=topic)
    (kv,) = body["kv"]
    assert (kv["cat"], kv["k"], kv["version"]) == ("topics", topic, 2) and one in kv["v"]
    _, page = api.dtm("scanKV", cat="topics", limit=1000)
    assert topic in [row["k"] for row in page["kv"]] and page["next_position"] == ""
    _, page = api.dtm("scanKV", cat="topics", limit=1)
    assert len(page["kv"]) == 1
    assert api.dtm("scanKV", cat="others")[1]["kv"] == []
    assert api.dtm("unsubscribe", topic=topic, url=one) == SUCCESS
    message = api.dtm("unsubscribe", topic=topic, url=one)[1]["message"]
    assert message == "no such an url "
    body = {"gid": gid, "trans_type": "msg", "steps": [{"action": f"topic://{topic}"}],
            "payloads": ["1"], "wait_result": True}
    assert api.dtm("submit", body) == SUCCESS
    assert busi.shown(gid) == "/two:action"
    assert api.dtm("unsubscribe", topic=f"no-{topic}", url=one)[1] == {"message": "no such a topic"}
    assert api.ask("DELETE", f"/api/dtmsvr/topic/{topic}") == SUCCESS
    assert api.ask("DELETE", f"/api/dtmsvr/topic/{topic}")[0] == 500
    assert api.dtm("submit", body | {"gid": gid + "2"}) == (500, {"message": "topic not found"})


# ---- Workflow -------------------------------------------------------------------------------

def test_workflow_progress_is_kept(api, gid):
    body = {"gid": gid, "trans_type": "workflow", "timeout_to_fail": 60,
            "custom_data": '{"name":"flow","data":"ZGF0YQ=="}'}
    status, answer = api.dtm("prepareWorkflow", body)
    assert status == 200 and answer["progresses"] == []
    assert answer["transaction"]["status"] == "prepared"
    fields = {"gid": gid, "trans_type": "workflow", "branch_id": "01", "op": "action",
              "status": "succeed", "data": "result"}
    assert api.dtm("registerBranch", fields) == SUCCESS
    _, answer = api.dtm("prepareWorkflow", body)
    (progress,) = answer["progresses"]
    assert (progress["branch_id"], progress["op"], progress["status"]) == ("01", "action",
                                                                            "succeed")
    assert progress["bin_data"] == "cmVzdWx0"
    assert api.dtm("submit", body)[0] == 500, "it does not say how it ended"
    extra = {"status": "failed", "rollback_reason": "why", "result": "cg=="}
    assert api.dtm("submit", body | {"req_extra": extra}) == SUCCESS
    t = api.dtm("prepareWorkflow", body)[1]["transaction"]
    assert (t["status"], t["rollback_reason"], t["result"]) == ("failed", "why", "cg==")


# ---- JSON-RPC -------------------------------------------------------------------------------

def test_json_rpc(api, busi, gid):
    status, body = api.rpc("newGid", {})
    assert status == 200 and len(body["result"]["gid"]) == 22 and body["id"] == "1"
    cases = [
        (api.ask("POST", "/api/json-rpc", "{"), -32700),
        (api.rpc("newGid", {}, jsonrpc="1.0"), -32600),
        (api.rpc("newGid", {}, id=""), -32600),
        (api.rpc("fly", {}), -32601),
        (api.rpc("submit", {"gid": "x", "trans_type": "nonsense"}), -32603),
        (api.rpc("registerBranch", {"gid": "nobody", "trans_type": "tcc"}), -32901),
    ]
    for (status, body), code in cases:
        assert (status, body["error"]["code"]) == (200, code), body
    tcc = {"gid": gid, "trans_type": "tcc"}
    for method in ["prepare", "prepare", "abort"]:
        status, body = api.rpc(method, tcc)
        assert (status, body["error"]) == (200, None)
    api.await_status(gid, "failed")
    msg = {"gid": gid + "m", "trans_type": "msg"}
    assert api.rpc("submit", msg)[1]["error"] is None
    assert api.status(gid + "m") == "succeed"


def test_json_rpc_branches(api, busi, gid):
    body = {"gid": gid, "trans_type": "saga", "protocol": "json-rpc", "wait_result": True,
            "steps": [{"action": f"{busi.url}/rpc?method=out", "compensate": ""}],
            "payloads": ['{"n":1}']}
    busi.script(gid, "/rpc", (200, '{"jsonrpc":"2.0","result":{},"id":"1"}'))
    assert api.dtm("submit", body) == SUCCESS
    (call,) = busi.of(gid)
    assert '"method":"out"' in call["body"]
    assert (call["query"]["n"], call["query"]["op"]) == (1, "action")


# ---- Waiting, alerts' ground: timeouts of what is prepared ----------------------------------

def test_waiting_for_what_is_not_done_is_an_error_and_it_goes_on(api, busi, saga, gid):
    busi.script(gid, "/out", 425)
    assert failure(api.dtm("submit", saga))
    api.await_status(gid, "succeed")


def test_what_is_prepared_times_out_by_its_kind(api, busi):
    gids = {}
    for kind in ["tcc", "xa", "msg"]:
        gids[kind] = api.gid()
        body = {"gid": gids[kind], "trans_type": kind, "timeout_to_fail": 1, "retry_interval": 1,
                "query_prepared": f"{busi.url}/query"}
        busi.script(gids[kind], "/query", 425, 409)
        assert api.dtm("prepare", body) == SUCCESS
    for gid in gids.values():
        api.await_status(gid, "failed")
    calls = busi.of(gids["msg"])
    assert [c["query"]["op"] for c in calls] == ["msg", "msg"]
    assert (calls[0]["query"]["branch_id"], calls[0]["method"]) == ("00", "GET")
    reason = api.state(gids["tcc"])["transaction"]["rollback_reason"]
    assert reason == "Timeout after 1 seconds"
