"""Tables that are kept in step with hashes: zeeSQL's replies, every way in which a hash changes,
transactions, scripts, errors, saves and kills.
"""

import pathlib
import random
import sys
import threading
import time

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_sql import Server, connect, execute, kill  # noqa: E402
from test_transactions import own, refused  # noqa: E402


def rows(client, key="DB", table="users"):
    """The rows of an index, by key."""
    return execute(client, "REDISQL.EXEC", key, f"select * from {table} order by key")


def indexed(client, key="DB", *path):
    """A database with an index over users."""
    execute(client, "SQL.CREATE", key, *path)
    assert execute(client, "ZEESQL.INDEX", key, "NEW", "PREFIX", "user:*", "TABLE", "users",
                   "SCHEMA", "username", "STRING", "score", "INT") == b"OK"


def in_step(client, key="DB", table="users"):
    """Whether an index has exactly what the hashes have; the rows."""
    found = rows(client, key, table)
    want = []
    for name in sorted(client.scan_iter("user:*", count=1000)):
        if client.type(name) == b"hash":
            username, score = client.hmget(name, "username", "score")
            want.append([name, username, None if score is None else int(score)])
    nothing = found == [b"DONE", 0]
    assert ([] if nothing else found) == want
    return want


def test_zeesqls_own_example():
    with Server() as server:
        client = connect(server)
        client.hset("user:1001", mapping={"username": "aaa", "score": 0})
        client.hset("other:1", mapping={"username": "zzz", "score": 0})
        indexed(client)
        client.hset("user:1002", mapping={"username": "bbb", "score": 7, "more": "x"})
        assert execute(client, "ZEESQL.EXEC", "DB", "COMMAND", "select * from users") == [
            [b"RESULT"], [b"key", b"username", b"score"], [b"TEXT", b"TEXT", b"INT"],
            [b"user:1001", b"aaa", 0], [b"user:1002", b"bbb", 7]]
        assert execute(client, "ZEESQL.INDEX", "DB", "LIST") == [[b"RESULT"],
                                                                 [b"users", b"user:*"]]
        assert execute(client, "ZEESQL.INDEX", "DB", "DELETE", "TABLE", "users", "PREFIX",
                       "user:*") == [[b"DONE"], [1]]
        assert execute(client, "ZEESQL.INDEX", "DB", "DELETE", "TABLE", "users") == \
            [[b"DONE"], [0]]
        client.hset("user:1003", "username", "ccc")
        assert len(rows(client)) == 2
        assert execute(client, "ZEESQL.INDEX", "DB", "LIST") == [[b"RESULT"]]
        # Without a prefix, every hash is in it.
        execute(client, "ZEESQL.INDEX", "DB", "new", "table", "everyone", "schema", "username",
                "TEXT")
        assert len(rows(client, table="everyone")) == 4


def test_errors_of_index():
    with Server() as server:
        client = connect(server)
        execute(client, "SQL.CREATE", "DB")
        for words, text in [
            (("NEW", "SCHEMA", "a", "INT"), "no TABLE"),
            (("NEW", "TABLE", "t"), "no SCHEMA"),
            (("NEW", "TABLE", "t", "SCHEMA", "a"), "no SCHEMA"),
            (("NEW", "TABLE", "t", "SCHEMA", "a", "INT) --"), "type must be"),
            (("NEW", "TABLE", "t", "X", "y", "SCHEMA", "a", "INT"), "syntax"),
            (("DELETE",), "no TABLE"),
            (("SOMETHING",), "NEW, LIST or DELETE"),
        ]:
            assert text in refused(client, "ZEESQL.INDEX", "DB", *words), words
        assert "Key does not exists" in refused(client, "ZEESQL.INDEX", "none", "LIST")
        client.set("text", 1)
        assert "Key does not belong" in refused(client, "ZEESQL.INDEX", "text", "LIST")
        execute(client, "SQL.BEGIN", "DB")
        one = own(server)
        execute(one, "SQL.CREATE", "DB2")
        execute(one, "SQL.BEGIN", "DB2")
        assert "inside a transaction" in refused(one, "SQL.INDEX", "DB2", "NEW", "TABLE", "t",
                                                 "SCHEMA", "a", "INT")


CHANGES = [
    ("HSET", "user:1", "score", "5"), ("HINCRBY", "user:1", "score", "3"),
    ("HDEL", "user:1", "username"), ("HMSET", "user:9", "username", "nine"),
    ("DEL", "user:2"), ("UNLINK", "user:3"), ("RENAME", "user:4", "user:40"),
    ("RENAME", "user:5", "gone:5"), ("RENAME", "gone:5", "user:50"), ("COPY", "user:6", "user:60"),
    ("SET", "user:6", "a string now"), ("PEXPIRE", "user:7", "1"), ("MOVE", "user:8", "1"),
    ("HDEL", "user:9", "username"), ("HSET", "user:10", "username", "ten", "score", "10"),
]


@pytest.mark.parametrize("path", [(), ("index.db",)])
def test_every_change_of_a_hash_is_seen(path):
    with Server() as server:
        client = connect(server)
        indexed(client, "DB", *path)
        for number in range(1, 9):
            client.hset(f"user:{number}", mapping={"username": f"u{number}", "score": number})
        assert len(in_step(client)) == 8
        for words in CHANGES:
            execute(client, *words)
            time.sleep(0.01)
            in_step(client)
        dumped = client.dump("user:1")
        client.delete("user:1")
        in_step(client)
        client.restore("user:1", 0, dumped)
        assert len(in_step(client)) > 3
        execute(client, "EVAL", "redis.call('HSET', 'user:77', 'score', 77) "
                "redis.call('DEL', 'user:1')", 0)
        in_step(client)
        client.copy("DB", "DB2")
        client.hset("user:1", "score", 1)
        in_step(client)
        in_step(client, "DB2")
        client.swapdb(0, 1)
        client.swapdb(0, 1)
        in_step(client)
        assert len(in_step(client, "DB2")) > 3
        pipe = client.pipeline(transaction=True)
        pipe.execute_command("MOVE", "DB2", 1)
        pipe.flushdb()
        pipe.execute()
        client.hset("user:5", "score", 5)
        client.swapdb(0, 1)
        client.move("DB2", 1)
        client.swapdb(0, 1)
        assert in_step(client, "DB2") == [[b"user:5", None, 5]]
        client.flushall()
        indexed(client, "DB", *path)
        execute(client, "REDISQL.EXEC", "DB", "delete from users")
        client.hset("user:1", "score", 1)
        in_step(client)


def test_transactions_see_their_own_changes():
    with Server() as server:
        client, other = connect(server), connect(server)
        indexed(client)
        pipe = client.pipeline(transaction=True)
        pipe.hset("user:1", mapping={"username": "x", "score": 1})
        pipe.execute_command("REDISQL.EXEC", "DB", "select score from users")
        pipe.hset("user:1", "score", 2)
        pipe.execute_command("REDISQL.EXEC", "DB", "select score from users")
        assert pipe.execute()[1::2] == [[[1]], [[2]]]
        in_step(other)
        pipe.hset("user:2", "score", 3)
        pipe.execute_command("REDISQL.EXEC", "DB", "select count(*) from users")
        pipe.execute_command("REDISQL.EXEC", "DB", "select nonsense")
        with pytest.raises(redis.ResponseError, match="nonsense"):
            pipe.execute()
        assert len(in_step(other)) == 1
        script = ("redis.call('HSET', 'user:3', 'score', 3) "
                  "return redis.call('REDISQL.EXEC', 'DB', 'select count(*) from users')")
        assert execute(client, "EVAL", script, 0) == [[2]]
        in_step(other)


@pytest.mark.parametrize("save", [False, True])
def test_an_index_survives_a_kill(save):
    options = {"appendonly": "no" if save else "yes", "appendfsync": "always"}
    with Server(options=options) as server:
        client = connect(server)
        indexed(client)
        execute(client, "SQL.EXEC", "DB", "create table seen(n int)")
        for number in range(300):
            client.hset(f"user:{number}", mapping={"username": "x", "score": number})
            if number % 50 == 0:
                execute(client, "SQL.EXEC", "DB",
                        "insert into seen select count(*) from users")
        client.delete("user:7")
        seen = execute(client, "REDISQL.EXEC", "DB", "select n from seen")
        client.hset("user:8", "score", -8)
        if save:
            client.save()
        kill(server)
        server.start()
        client = connect(server)
        assert len(in_step(client)) == 299
        assert execute(client, "REDISQL.EXEC", "DB", "select n from seen") == seen
        assert execute(client, "ZEESQL.INDEX", "DB", "LIST")[1] == [b"users", b"user:*"]
        client.hset("user:9", "score", -9)
        in_step(client)
        pipe = client.pipeline(transaction=True)
        pipe.hset("user:10", "score", -10)
        pipe.execute_command("REDISQL.EXEC", "DB", "select min(score) from users")
        assert pipe.execute()[1] == [[-10]]


def test_sums_hold_while_many_move():
    """Money moves between hashes in transactions; the index shows only sums that were there."""
    with Server() as server:
        client = connect(server)
        indexed(client)
        for number in range(16):
            client.hset(f"user:{number}", "score", 100)
        ends, sums = threading.Event(), []

        def move(seed):
            mover, chance = own(server), random.Random(seed)
            while not ends.is_set():
                one, other = chance.sample(range(16), 2)
                pipe = mover.pipeline(transaction=True)
                pipe.hincrby(f"user:{one}", "score", -1)
                pipe.hincrby(f"user:{other}", "score", 1)
                pipe.execute()

        threads = [threading.Thread(target=move, args=(seed,)) for seed in range(4)]
        [thread.start() for thread in threads]
        ending = time.monotonic() + 2
        while time.monotonic() < ending:
            sums.append(execute(client, "REDISQL.EXEC", "DB", "select sum(score) from users"))
        ends.set()
        [thread.join() for thread in threads]
        assert set(map(str, sums)) == {"[[1600]]"} and len(sums) > 20
        in_step(client)
