"""Transactions and cursors that span commands of one connection, against the built server: what
others see meanwhile, what ends them, what is left of them in the log.
"""

import pathlib
import sys
import threading
import time

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import Server  # noqa: E402 (found by the line above)
from test_sql import connect, count, execute, kill, table  # noqa: E402


def own(server):
    """A client with one connection of its own."""
    return redis.Redis(server.host, server.port, single_connection_client=True,
                       socket_timeout=30)


def refused(client, *words):
    """The text of the error that a command ends in."""
    with pytest.raises(redis.ResponseError) as caught:
        execute(client, *words)
    return str(caught.value)


PATHS = [("DB", ()), ("FILE", ("tx.db",))]


@pytest.mark.parametrize("key,path", PATHS)
def test_a_transaction_spans_commands(key, path):
    with Server() as server:
        client, other = own(server), connect(server)
        table(other, key, *path)
        assert execute(client, "SQL.BEGIN", key) == b"OK"
        assert refused(client, "SQL.BEGIN", key) == "a SQL transaction is open already"
        for number in range(3):
            execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", number, 1, 1)
        assert "no such table" in refused(client, "SQL.EXEC", key, "insert into u values(1)")
        assert count(client, key) == 3
        done = []
        waits = threading.Thread(target=lambda: done.append(
            execute(own(server), "REDISQL.EXEC_STATEMENT", key, "ins", 9, 9, 9)))
        waits.start()
        time.sleep(0.2)
        assert not done
        assert execute(client, "SQL.COMMIT") == b"OK"
        waits.join()
        assert count(other, key) == 4
        assert refused(client, "SQL.COMMIT") == "no SQL transaction is open"
        assert refused(client, "SQL.ROLLBACK") == "no SQL transaction is open"
        execute(client, "SQL.BEGIN", key)
        execute(client, "SQL.EXEC", key, "delete from t")
        assert execute(client, "SQL.ROLLBACK") == b"OK"
        assert count(other, key) == 4


@pytest.mark.parametrize("key,path", PATHS)
def test_a_transaction_ends_with_its_connection(key, path):
    with Server() as server:
        other = connect(server)
        table(other, key, *path)
        gone, resets = own(server), own(server)
        execute(gone, "SQL.BEGIN", key)
        execute(gone, "SQL.EXEC", key, "insert into t values(1,1,1)")
        gone.close()
        assert count(other, key) == 0
        execute(resets, "SQL.BEGIN", key)
        execute(resets, "SQL.EXEC", key, "insert into t values(1,1,1)")
        execute(resets, "RESET")
        assert count(other, key) == 0
        assert refused(resets, "SQL.COMMIT") == "no SQL transaction is open"


def test_limits_of_a_transaction():
    options = {"sql-idle-timeout-ms": 300, "sql-timeout-ms": 1500, "sql-sessions-max": 2}
    with Server(options=options) as server:
        client, other = own(server), connect(server)
        table(other)
        execute(client, "SQL.BEGIN", "DB")
        execute(client, "SQL.EXEC", "DB", "insert into t values(1,1,1)")
        assert "database is locked" in refused(
            other, "EVAL", "return redis.call('REDISQL.EXEC', KEYS[1], 'select 1')", 1, "DB")
        time.sleep(0.5)
        text = "the SQL transaction was rolled back: it was idle for longer than"
        assert text in refused(client, "SQL.EXEC", "DB", "insert into t values(2,2,2)")
        assert text in refused(client, "SQL.COMMIT")
        assert count(other) == 0
        execute(client, "SQL.BEGIN", "DB")
        time.sleep(0.5)
        assert execute(client, "SQL.ROLLBACK") == b"OK"
        # A statement that rolls everything back ends it, too.
        execute(other, "SQL.EXEC", "DB", "create unique index u on t(a)")
        execute(client, "SQL.BEGIN", "DB")
        execute(client, "SQL.EXEC", "DB", "insert into t values(1,1,1)")
        assert "UNIQUE" in refused(client, "SQL.EXEC", "DB",
                                   "insert or rollback into t values(1,1,1)")
        assert "a statement took it along" in refused(client, "SQL.EXEC", "DB", "select 1")
        execute(client, "SQL.ROLLBACK")
        others = [own(server) for _ in range(3)]
        execute(others[0], "SQL.BEGIN", "DB", "READ")
        execute(others[1], "SQL.BEGIN", "DB", "READ")
        assert "sql-sessions-max" in refused(others[2], "SQL.BEGIN", "DB", "READ")
        assert other.config_set("sql-sessions-max", 3)
        execute(others[2], "SQL.BEGIN", "DB", "READ")


def test_others_are_told_that_the_database_is_locked():
    options = {"sql-idle-timeout-ms": 5000, "sql-timeout-ms": 300}
    with Server(options=options) as server:
        client, other = own(server), connect(server)
        table(other)
        execute(client, "SQL.BEGIN", "DB")
        assert refused(other, "SQL.EXEC", "DB", "delete from t").endswith("database is locked")
        assert refused(other, "REDISQL.EXEC", "DB", "delete from t") == "database is locked"
        assert refused(other, "SQL.BEGIN", "DB").endswith("database is locked")
        assert refused(other, "SQL.COMMIT") == "no SQL transaction is open"
        pipe = other.pipeline(transaction=True)
        pipe.set("k", 1)
        pipe.execute_command("REDISQL.EXEC", "DB", "select 1")
        with pytest.raises(redis.ResponseError, match="database is locked"):
            pipe.execute()
        assert other.get("k") is None


@pytest.mark.parametrize("key,path", PATHS)
def test_a_reading_transaction_sees_one_instant(key, path):
    with Server() as server:
        client, other = own(server), connect(server)
        table(other, key, *path)
        execute(other, "REDISQL.EXEC_STATEMENT", key, "ins", 1, 1, 1)
        execute(client, "SQL.BEGIN", key, "READ")
        execute(other, "REDISQL.EXEC_STATEMENT", key, "ins", 2, 2, 2)
        assert (count(client, key), count(other, key)) == (1, 2)
        assert "readonly" in refused(client, "SQL.EXEC", key, "delete from t")
        assert execute(client, "SQL.COMMIT") == b"OK"
        assert count(client, key) == 2
        # An open transaction's changes are not in a snapshot.
        execute(other, "SET", "x", 1)
        writer = own(server)
        execute(writer, "SQL.BEGIN", key)
        execute(writer, "SQL.EXEC", key, "insert into t values(random(), random(), 3)")
        seen = execute(writer, "REDISQL.EXEC", key, "select * from t")
        execute(client, "SQL.BEGIN", key, "READ")
        assert count(client, key) == 2
        execute(client, "SQL.ROLLBACK")
        assert execute(writer, "REDISQL.EXEC", key, "select * from t") == seen
        execute(writer, "SQL.COMMIT")
        assert execute(other, "REDISQL.EXEC", key, "select * from t") == seen


def test_what_a_transaction_cannot_do():
    with Server() as server:
        client, other = own(server), connect(server)
        table(other)
        table(other, "DB2")
        assert "no such database" in refused(client, "SQL.BEGIN", "none")
        assert "syntax error" in refused(client, "SQL.BEGIN", "DB", "WRITE")
        execute(client, "SQL.BEGIN", "DB")
        assert "no copies" in refused(client, "REDISQL.COPY", "DB2", "DB")
        assert "stream" in refused(client, "REDISQL.QUERY.INTO", "s", "DB", "select 1")
        assert "MULTI" in refused(
            client, "EVAL", "return redis.call('REDISQL.EXEC', KEYS[1], 'select 1')", 1, "DB")
        assert "cursor" in refused(client, "SQL.CURSOR", "DB", "select 1")
        assert "BEGIN" in refused(client, "REDISQL.EXEC", "DB", "begin")
        # Another database is not in it.
        execute(client, "REDISQL.EXEC_STATEMENT", "DB2", "ins", 1, 1, 1)
        assert count(other, "DB2") == 1
        execute(other, "DEL", "DB")
        assert "no such database" in refused(client, "SQL.EXEC", "DB", "select 1")
        execute(other, "REDISQL.CREATE_DB", "DB")
        assert "is gone" in refused(client, "SQL.EXEC", "DB", "select 1")
        assert "was removed" in refused(client, "SQL.COMMIT")


def test_images_do_not_wait_for_a_transaction():
    options = {"appendonly": "yes", "appendfsync": "always"}
    with Server(options=options) as server:
        client, other = own(server), connect(server)
        table(other)
        execute(other, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 1, 1)
        execute(client, "SQL.BEGIN", "DB")
        execute(client, "SQL.EXEC", "DB", "insert into t values(random(), 2, 2)")
        seen = execute(client, "REDISQL.EXEC", "DB", "select * from t")
        before = time.monotonic()
        dumped = other.dump("DB")
        other.save()
        assert time.monotonic() - before < 3
        other.restore("copy", 0, dumped)
        assert count(other, "copy") == 1
        assert execute(client, "REDISQL.EXEC", "DB", "select * from t") == seen
        execute(client, "SQL.EXEC", "DB", "insert into t values(3,3,3)")
        other.rename("DB", "NEW")
        execute(client, "SQL.COMMIT")
        seen = execute(other, "REDISQL.EXEC", "NEW", "select * from t")
        assert len(seen) == 3
        lost = own(server)
        execute(lost, "SQL.BEGIN", "NEW")
        execute(lost, "SQL.EXEC", "NEW", "delete from t")
        kill(server)
        server.start()
        assert execute(connect(server), "REDISQL.EXEC", "NEW", "select * from t") == seen


def test_a_long_statement_makes_way_for_a_save():
    with Server() as server:
        client, other = own(server), connect(server)
        table(other)
        answers = []
        long = ("with recursive c(x) as (select 1 union all select x+1 from c where x < 3000000) "
                "insert into t select max(x), 0, 0 from c")
        thread = threading.Thread(
            target=lambda: answers.append(execute(client, "SQL.EXEC", "DB", long)))
        thread.start()
        time.sleep(0.2)
        before = time.monotonic()
        other.save()
        other.dump("DB")
        took = time.monotonic() - before
        thread.join()
        assert took < 1 and answers
        assert execute(other, "REDISQL.EXEC", "DB", "select a from t") == [[3000000]]


@pytest.mark.parametrize("key,path", PATHS)
def test_a_cursor_gives_portions_of_one_instant(key, path):
    with Server(options={"sql-idle-timeout-ms": 1000}) as server:
        client, other = own(server), connect(server)
        table(other, key, *path)
        for number in range(10):
            execute(other, "REDISQL.EXEC_STATEMENT", key, "ins", number, 0, 0)
        opened = execute(client, "SQL.CURSOR", key, "select a, b from t where a >= ?1 order by a",
                         "VALUES", 2)
        opened = dict(zip(opened[::2], opened[1::2]))
        assert opened[b"columns"] == [b"a", b"b"]
        cursor = opened[b"cursor"]
        execute(other, "REDISQL.EXEC", key, "delete from t")
        portion = execute(client, "SQL.FETCH", cursor, 5)
        assert portion == [b"rows", [[n, 0] for n in range(2, 7)], b"done", 0]
        portion = execute(client, "SQL.FETCH", cursor)
        assert portion == [b"rows", [[n, 0] for n in range(7, 10)], b"done", 1]
        assert execute(client, "SQL.FETCH", cursor) == [b"rows", [], b"done", 1]
        assert execute(client, "SQL.CLOSE", cursor) == b"OK"
        assert "no such cursor" in refused(client, "SQL.FETCH", cursor)
        assert "no such cursor" in refused(client, "SQL.CLOSE", 77)
        assert "only reads" in refused(client, "SQL.CURSOR", key, "delete from t")
        assert "only reads" in refused(client, "SQL.CURSOR", key, "select 1; select 2")
        assert "no such table" in refused(client, "SQL.CURSOR", key, "select * from none")
        assert "number of rows" in refused(client, "SQL.FETCH", 1, 0)
        endless = ("with recursive c(x) as (select 1 union all select x+1 from c) "
                   "select x from c")
        opened = execute(client, "SQL.CURSOR", key, endless)
        for _ in range(3):
            assert len(execute(client, "SQL.FETCH", opened[1], 10000)[1]) == 10000
        time.sleep(1.4)
        assert "no such cursor" in refused(client, "SQL.FETCH", opened[1])


def test_a_saved_file_is_of_one_instant():
    """Money moves between a key and a row all the time; each saved file has all of it."""
    with Server(options={"rdb-key-save-delay": 20}) as server:
        client, mover = connect(server), own(server)
        table(client)
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1000, 0, 0)
        client.set("money", 1000)
        for number in range(500):
            client.set(f"fill{number}", number)
        ends = threading.Event()

        def move():
            while not ends.is_set():
                pipe = mover.pipeline(transaction=True)
                pipe.incrby("money", -1)
                pipe.execute_command("REDISQL.EXEC", "DB", "update t set a = a + 1")
                pipe.execute()

        thread = threading.Thread(target=move)
        thread.start()
        try:
            for _ in range(3):
                client.bgsave()
                while client.info("persistence")["rdb_bgsave_in_progress"]:
                    time.sleep(0.01)
        finally:
            ends.set()
            thread.join()
        kill(server)
        server.start()
        client = connect(server)
        rows = execute(client, "REDISQL.EXEC", "DB", "select a from t")[0][0]
        assert int(client.get("money")) + rows == 2000 and rows > 1000


def test_a_transaction_with_keys_cannot_dump_what_it_changed():
    with Server() as server:
        client = connect(server)
        table(client)
        pipe = client.pipeline(transaction=True)
        pipe.execute_command("REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 1, 1)
        pipe.copy("DB", "other")
        with pytest.raises(redis.ResponseError, match="not committed"):
            pipe.execute()
        assert (count(client), client.exists("other")) == (0, 0)


def test_cancel_reaches_cursors_and_reading_transactions():
    endless = ("with recursive c(x) as (select 1 union all select x+1 from c) "
               "select max(x) from c")
    with Server(options={"sql-timeout-ms": "600000"}) as server:
        other = connect(server)
        table(other)
        for begin in (("SQL.CURSOR", "DB", endless), ("SQL.BEGIN", "DB", "READ")):
            client = redis.Redis(server.host, server.port, single_connection_client=True,
                                 socket_timeout=120)
            opened = execute(client, *begin)
            words = ("SQL.QUERY", "DB", endless)
            if begin[0] == "SQL.CURSOR":
                words = ("SQL.FETCH", opened[1])
            said = []
            waits = threading.Thread(target=lambda: said.append(refused(client, *words)))
            waits.start()
            while waits.is_alive():
                execute(other, "SQL.CANCEL", "DB")
                waits.join(0.02)
            assert said == ["the statement was cancelled"], begin
