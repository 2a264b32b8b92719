"""`SAGA.*` over RESP: every command, its refusals, and what waiting means."""

import json
import threading
import time

import pytest
import redis

VERBS = ["RETRY", "SKIP", "FORCE", "COMPENSATE", "CANCEL", "PAUSE", "RESUME", "STOP"]


def submit(client, saga, *words, **changes):
    return client.execute_command("SAGA.SUBMIT", json.dumps(saga | changes), *words)


def shown(client, gid):
    return json.loads(client.execute_command("SAGA.GET", gid))


def stuck(busi, saga, gid, answers=40, **changes):
    """Makes /in be tried again and again."""
    busi.script(gid, "/in", *[500] * answers)
    return saga | {"wait_result": False, "retry_interval": 60} | changes


def until(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_submit_and_get(redis_client, busi, saga, gid):
    assert submit(redis_client, saga, "WAIT") == "succeed"
    assert busi.shown(gid) == "/out:action /in:action"
    t = shown(redis_client, gid)
    assert (t["gid"], t["status"]) == (gid, "succeed")
    assert len(t["timeline"]) == 2
    assert redis_client.execute_command("SAGA.GET", "nobody") is None


def test_submit_refuses(redis_client, saga):
    for words, text in [
        (["{"], "the request"),
        ([json.dumps({"gid": "", "trans_type": "saga"})], "a gid has"),
        ([json.dumps(saga), "WHY"], "syntax error"),
        ([json.dumps(saga), "WAIT", "WAIT"], "syntax error"),
        ([], "wrong number of arguments"),
    ]:
        with pytest.raises(redis.ResponseError, match=text):
            redis_client.execute_command("SAGA.SUBMIT", *words)
    submit(redis_client, saga, "WAIT")
    with pytest.raises(redis.ResponseError, match="other content"):
        submit(redis_client, saga, steps=[{"action": ""}], payloads=["1"])


def test_wait(redis_client, server, busi, saga, gid):
    busi.script(gid, "/out", 0.3)
    submit(redis_client, saga, wait_result=False)
    assert redis_client.execute_command("SAGA.WAIT", gid, "0.01") is None
    began = time.monotonic()
    assert redis_client.execute_command("SAGA.WAIT", gid, "0") == "succeed"
    assert time.monotonic() - began < 3
    assert redis_client.execute_command("SAGA.WAIT", gid, "1") == "succeed", "finished already"
    for words, text in [(["nobody", "1"], "no transaction"), ([gid, "-1"], "timeout"),
                        ([gid, "soon"], "timeout")]:
        with pytest.raises(redis.ResponseError, match=text):
            redis_client.execute_command("SAGA.WAIT", *words)


def test_wait_does_not_hold_up_others(redis_client, server, busi, saga, gid):
    busi.script(gid, "/out", 0.6)
    submit(redis_client, saga, wait_result=False)
    results = []

    def wait():
        own = redis.Redis(server.host, server.port, decode_responses=True)
        results.append(own.execute_command("SAGA.WAIT", gid, "10"))
    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    began = time.monotonic()
    assert redis_client.ping() and time.monotonic() - began < 0.3
    for thread in threads:
        thread.join()
    assert results == ["succeed"] * 5


def test_list_and_stats(redis_client, busi, saga, gid):
    name = f"transfer-{gid}"
    gids = [f"{gid}-{number}" for number in range(3)]
    for own in gids:
        submit(redis_client, saga, "WAIT", gid=own, name=name)
        time.sleep(0.005)
    ask = redis_client.execute_command
    cursor, page = ask("SAGA.LIST", "NAME", name, "STATUS", "succeed", "LIMIT", "2")
    assert page == [[gids[2], "succeed"], [gids[1], "succeed"]]
    assert ask("SAGA.LIST", "NAME", name, "CURSOR", cursor) == ["0", [[gids[0], "succeed"]]]
    assert ask("SAGA.LIST", "NAME", name, "STATUS", "failed") == ["0", []]
    for words in [["STATUS", "sleepy"], ["LIMIT"], ["WHAT", "1"], ["HOLD", "never"]]:
        with pytest.raises(redis.ResponseError, match="syntax error"):
            ask("SAGA.LIST", *words)
    stats = ask("SAGA.STATS")
    if isinstance(stats, list):
        stats = dict(zip(stats[::2], stats[1::2]))
    assert set(stats) == {"prepared", "submitted", "aborting", "succeed", "failed", "paused",
                          "dead", "retained_bytes"}
    assert stats["succeed"] >= 3 and stats["retained_bytes"] > 0


def test_pause_and_resume(redis_client, busi, saga, gid):
    ask = redis_client.execute_command
    submit(redis_client, stuck(busi, saga, gid, answers=1))
    until(lambda: "/in:action" in busi.shown(gid))
    time.sleep(0.1)
    assert ask("SAGA.PAUSE", gid) == "submitted"
    assert shown(redis_client, gid)["hold"] == "paused"
    assert [gid, "submitted"] in ask("SAGA.LIST", "HOLD", "paused")[1]
    assert ask("SAGA.RESUME", gid) == "submitted"
    assert ask("SAGA.WAIT", gid, "5") == "succeed"


def test_retry(redis_client, busi, saga, gid):
    ask = redis_client.execute_command
    submit(redis_client, stuck(busi, saga, gid, answers=1))
    until(lambda: "/in:action" in busi.shown(gid))
    time.sleep(0.1)
    assert ask("SAGA.RETRY", gid) == "submitted"
    assert ask("SAGA.WAIT", gid, "5") == "succeed"


@pytest.mark.parametrize("verb, status, calls", [
    ("FORCE", "succeed", "/out:action /in:action"),
    ("SKIP", "succeed", "/out:action /in:action"),
    ("COMPENSATE", "failed", "/out:action /in:action /in-back:compensate /out-back:compensate"),
    ("CANCEL", "failed", "/out:action /in:action /in-back:compensate /out-back:compensate"),
    ("STOP", "failed", "/out:action /in:action"),
])
def test_verbs_that_end_it(redis_client, busi, saga, gid, verb, status, calls):
    ask = redis_client.execute_command
    submit(redis_client, stuck(busi, saga, gid))
    until(lambda: "/in:action" in busi.shown(gid))
    time.sleep(0.1)
    ask(f"SAGA.{verb}", gid)
    assert ask("SAGA.WAIT", gid, "5") == status
    assert busi.shown(gid) == calls
    timeline = json.dumps(shown(redis_client, gid)["timeline"])
    assert f"{verb.lower()} by client" in timeline


def test_verbs_with_a_branch(redis_client, busi, saga, gid):
    ask = redis_client.execute_command
    submit(redis_client, stuck(busi, saga, gid))
    until(lambda: "/in:action" in busi.shown(gid))
    time.sleep(0.1)
    for branch in ["1", "7"]:
        with pytest.raises(redis.ResponseError, match="branch"):
            ask("SAGA.FORCE", gid, branch)
    assert ask("SAGA.FORCE", gid, "3") == "succeed"
    with pytest.raises(redis.ResponseError):
        ask("SAGA.FORCE", gid, "three")


def test_dead_letters_come_back(redis_client, busi, saga, gid):
    ask = redis_client.execute_command
    submit(redis_client, stuck(busi, saga, gid, answers=4, retry_interval=1))
    until(lambda: shown(redis_client, gid).get("hold") == "dead", seconds=12)
    assert [gid, "submitted"] in ask("SAGA.LIST", "HOLD", "dead")[1]
    ask("SAGA.RETRY", gid)
    assert ask("SAGA.WAIT", gid, "5") == "succeed"


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_refuse(redis_client, saga, gid, verb):
    submit(redis_client, saga, "WAIT")
    for words, text in [([gid], "succeed"), (["nobody"], "no transaction"),
                        ([gid, "1", "2"], "syntax error")]:
        with pytest.raises(redis.ResponseError, match=text):
            redis_client.execute_command(f"SAGA.{verb}", *words)


def test_in_a_transaction_nothing_waits(redis_client, busi, saga, gid):
    busi.script(gid, "/out", 0.3)
    pipe = redis_client.pipeline(transaction=True)
    pipe.execute_command("SAGA.SUBMIT", json.dumps(saga), "WAIT")
    pipe.execute_command("SAGA.WAIT", gid, "5")
    assert pipe.execute() == [None, None]
    assert redis_client.execute_command("SAGA.WAIT", gid, "5") == "succeed"
