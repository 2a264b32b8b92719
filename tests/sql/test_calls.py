"""Commands that SQL calls and live keys that SQL writes, against the built server: whole with the
SQL or not at all, from many connections, after kill -9.
"""

import pathlib
import sys
import threading

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import Server  # noqa: E402 (found by the line above)
from test_sql import connect, count, execute, kill, table  # noqa: E402
from test_transactions import PATHS, own, refused  # noqa: E402

TRIGGER = """create trigger added after insert on t begin
    select redis('XADD', 'log', '*', 'a', NEW.a);
    select redis('HINCRBY', 'sums', 'a', NEW.a);
    select redis('PUBLISH', 'news', NEW.a); end"""


def prepare(client, key, *path):
    table(client, key, *path)
    execute(client, "SQL.EXEC", key, TRIGGER)
    execute(client, "SQL.EXEC", key,
            "create virtual table users using redis_hash('user:', n, name)")


def agrees(client, key):
    """The number of rows, which the stream and the hash must say, too."""
    reply = execute(client, "REDISQL.EXEC", key, "select count(*), total(a) from t")
    rows, total = reply[0][0], int(float(reply[0][1]))
    assert client.xlen("log") == rows
    assert int(client.hget("sums", "a") or 0) == total
    return rows


@pytest.mark.parametrize("key,path", PATHS)
def test_calls_are_whole(key, path):
    with Server() as server:
        client = connect(server)
        prepare(client, key, *path)
        listener = own(server).pubsub()
        listener.subscribe("news")
        assert listener.get_message(timeout=30)["type"] == "subscribe"
        execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", 1, 0, 0)
        pipe = client.pipeline(transaction=False)
        for number in range(2, 40):
            pipe.execute_command("REDISQL.EXEC_STATEMENT", key, "ins", number, 0, 0)
        pipe.execute()
        assert agrees(client, key) == 39
        pipe = client.pipeline(transaction=True)
        pipe.execute_command("REDISQL.EXEC_STATEMENT", key, "ins", 100, 0, 0)
        pipe.execute_command("LPUSH", "sums", "x")
        with pytest.raises(redis.ResponseError):
            pipe.execute()
        assert agrees(client, key) == 39
        client.eval("redis.call('REDISQL.EXEC_STATEMENT', KEYS[1], 'ins', 100, 0, 0)", 1, key)
        client.eval("redis.pcall('REDISQL.EXEC', KEYS[1], "
                    "'insert into t values(100,0,0); insert into nowhere values(1)') "
                    "redis.call('REDISQL.EXEC_STATEMENT', KEYS[1], 'ins', 101, 0, 0)", 1, key)
        assert agrees(client, key) == 41
        execute(client, "SQL.BATCH", key, "insert into t values(?,0,0)", 1, *range(200, 250))
        assert agrees(client, key) == 91
        said = [listener.get_message(timeout=30)["data"] for _ in range(91)]
        # What was undone was never said.
        assert sorted(map(int, said)) == sorted([*range(1, 40), 100, 101, *range(200, 250)])


@pytest.mark.parametrize("key,path", PATHS)
def test_calls_of_a_transaction_wait_for_its_commit(key, path):
    with Server() as server:
        client, other = own(server), connect(server)
        prepare(other, key, *path)
        execute(client, "SQL.BEGIN", key)
        for number in range(5):
            execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", number, 0, 0)
        execute(client, "SQL.EXEC", key, "insert into users values('user:1', 5, 'ann')")
        assert other.xlen("log") == 0 and other.exists("user:1") == 0
        # An image meanwhile has nothing of it either.
        other.save()
        assert execute(client, "SQL.COMMIT") == b"OK"
        assert agrees(other, key) == 5
        assert other.hgetall("user:1") == {b"n": b"5", b"name": b"ann"}
        execute(client, "SQL.BEGIN", key)
        execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", 7, 0, 0)
        assert "live keys" in refused(client, "SQL.EXEC", key, "update users set n = n + 1")
        execute(client, "SQL.ROLLBACK")
        assert agrees(other, key) == 5
        other.set("log", "no stream any more")
        execute(client, "SQL.BEGIN", key)
        execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", 8, 0, 0)
        assert "WRONGTYPE" in refused(client, "SQL.COMMIT")
        assert count(other, key) == 5


def test_live_rows_are_counted_up_by_many():
    with Server() as server:
        client = connect(server)
        prepare(client, "DB")
        for number in range(4):
            client.hset(f"user:{number}", "n", 0)
        failures = []

        def work(which):
            mine = own(server)
            for turn in range(60):
                where = "where key = 'user:1'" if turn % 2 else ""
                words = ["REDISQL.EXEC", "DB", f"update users set n = n + 1 {where}"]
                try:
                    if which % 3 == 0:
                        execute(mine, *words)
                    elif which % 3 == 1:
                        pipe = mine.pipeline(transaction=True)
                        while True:
                            try:
                                pipe.execute_command(*words)
                                pipe.execute()
                                break
                            except redis.ResponseError as error:
                                # Others have the keys: nothing was done.
                                assert "locked" in str(error), error
                    else:
                        mine.hincrby("user:1", "n", 1)
                        mine.hincrby("user:0", "n", 1 - turn % 2)
                        for other in ("user:2", "user:3"):
                            mine.hincrby(other, "n", 1 - turn % 2)
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=work, args=(which,)) for which in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        counts = [int(client.hget(f"user:{number}", "n")) for number in range(4)]
        assert counts == [180, 360, 180, 180]


def test_calls_and_rows_agree_after_kill():
    # In memory: a file keeps its own commits, and may be one ahead of the log (docs/sql.md).
    key = "DB"
    options = {"appendonly": "yes", "appendfsync": "always"}
    with Server(options=options) as server:
        prepare(connect(server), key)
        for _ in range(3):
            acknowledged, stop = [0] * 4, threading.Event()

            def write(which):
                mine = own(server)
                words = ("REDISQL.EXEC_STATEMENT", key, "ins", 1, 2, 3)
                script = "return redis.call('REDISQL.EXEC_STATEMENT', KEYS[1], 'ins', 1, 2, 3)"
                while not stop.is_set():
                    try:
                        if which == 0:
                            execute(mine, *words)
                        elif which == 1:
                            pipe = mine.pipeline(transaction=True)
                            pipe.execute_command(*words)
                            pipe.incr("other")
                            pipe.execute()
                        elif which == 2:
                            mine.eval(script, 1, key)
                        else:
                            execute(mine, "REDISQL.EXEC", key, "update users set n = n + 1")
                            mine.hset("user:1", "name", "x")
                        acknowledged[which] += 1
                    except redis.ResponseError as error:
                        assert "locked" in str(error) or "EXECABORT" in str(error), error
                    except redis.ConnectionError:
                        return

            before = agrees(connect(server), key)
            threads = [threading.Thread(target=write, args=(which,)) for which in range(4)]
            for thread in threads:
                thread.start()
            while min(acknowledged) < 5:
                stop.wait(0.01)
            kill(server)
            stop.set()
            for thread in threads:
                thread.join()
            server.start()
            rows = agrees(connect(server), key) - before
            assert rows >= sum(acknowledged[:3])


def test_what_runs_elsewhere_is_in_the_slow_log_and_histograms():
    slow = ("with recursive c(x) as (select 1 union all select x+1 from c limit 300000) "
            "select max(x) from c")
    with Server(options={"slowlog-log-slower-than": "10000"}) as server:
        client = connect(server)
        table(client)
        assert execute(client, "REDISQL.QUERY", "DB", slow) == [[300000]]
        pipe = client.pipeline(transaction=False)
        pipe.execute_command("SQL.QUERY", "DB", "select 1")
        pipe.execute_command("SQL.QUERY", "DB", slow)
        pipe.execute()
        commands = [entry["command"] for entry in client.slowlog_get()]
        assert sum(b"300000" in command for command in commands) == 2, commands
        assert all(entry["duration"] >= 10000 for entry in client.slowlog_get())
        found = execute(client, "LATENCY", "HISTOGRAM", "redisql.query", "sql.query")
        calls = {found[at].decode(): found[at + 1][1] for at in range(0, len(found), 2)}
        assert calls == {"redisql.query": 1, "sql.query": 2}
        stats = client.info("commandstats")
        assert stats["cmdstat_redisql.query"]["calls"] == 1
        assert stats["cmdstat_redisql.query"]["usec"] >= 10000
