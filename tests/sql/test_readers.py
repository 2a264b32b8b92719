"""Long reads beside the writer: what they see, that the writer and each other go on meanwhile,
that they can be stopped, and that what only the writer can do still works.
"""

import pathlib
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import Server  # noqa: E402 (found by the line above)
from test_sql import connect, execute  # noqa: E402

PATHS = [("DB", ()), ("FILE", ("readers.db",))]
ROWS = 20000
FILL = (f"insert into t with recursive n(i) as (select 1 union all select i + 1 from n "
        f"limit {ROWS}) select i, 1 from n")
ENDLESS = ("with recursive n(i) as (select 1 union all select i + 1 from n) "
           "select count(*) from n")


def filled(client, key, *path):
    execute(client, "REDISQL.CREATE_DB", key, *path)
    execute(client, "REDISQL.EXEC", key, "create table t(a integer primary key, b integer)")
    execute(client, "REDISQL.EXEC", key, FILL)
    execute(client, "REDISQL.CREATE_STATEMENT", key, "sum", "select sum(b), count(*) from t")


def in_background(server, *words):
    """Sends a command on a connection of its own; the list gets its reply."""
    replies = []

    def ask():
        try:
            replies.append(execute(connect(server), *words))
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            replies.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, replies


@pytest.mark.parametrize("key,path", PATHS)
def test_the_writer_goes_on_beside_an_endless_read(key, path):
    with Server() as server:
        client = connect(server)
        filled(client, key, *path)
        reads = [in_background(server, "REDISQL.QUERY", key, ENDLESS) for _ in range(2)]
        time.sleep(0.3)
        began = time.monotonic()
        for number in range(200):
            execute(client, "REDISQL.EXEC", key, f"insert into t values({100000 + number}, 1)")
            if number % 20 == 0:
                total = execute(client, "REDISQL.QUERY_STATEMENT", key, "sum")
                assert total == [[ROWS + number + 1, ROWS + number + 1]]
        assert time.monotonic() - began < 5
        assert all(thread.is_alive() for thread, _ in reads)
        assert execute(client, "SQL.CANCEL", key) == 1
        for thread, replies in reads:
            thread.join(5)
            assert "cancelled" in str(replies[0])
        assert execute(client, "SQL.CANCEL", key) == 0


@pytest.mark.parametrize("key,path", PATHS)
def test_a_read_sees_whole_transactions_and_all_that_was_answered(key, path):
    with Server() as server:
        client = connect(server)
        filled(client, key, *path)
        over = threading.Event()
        problems = []

        def write():
            own = connect(server)
            while not over.is_set():
                # The sum stays as it is.
                execute(own, "REDISQL.EXEC", key, "update t set b = b + 5 where a = 1; "
                                                  "update t set b = b - 5 where a = 2")

        def read():
            own = connect(server)
            while not over.is_set():
                total = execute(own, "REDISQL.QUERY_STATEMENT", key, "sum")
                if total[0][0] != ROWS:
                    problems.append(total)

        threads = [threading.Thread(target=run) for run in (write, read, read, read)]
        for thread in threads:
            thread.start()
        own = connect(server)
        for number in range(30):
            execute(own, "REDISQL.EXEC", key, f"create table v{number}(x)")
            text = f"select (select count(*) from v{number}), sum(b) from t"
            assert execute(own, "REDISQL.EXEC", key, text) == [[0, ROWS]]
        over.set()
        for thread in threads:
            thread.join(10)
        assert not problems


@pytest.mark.parametrize("key,path", PATHS)
def test_what_only_the_writer_knows_comes_from_the_writer(key, path):
    with Server() as server:
        client = connect(server)
        filled(client, key, *path)
        long = "(select sum(b) from t)"
        execute(client, "REDISQL.EXEC", key, "insert into t values(777777, 1)")
        rowid = execute(client, "REDISQL.EXEC", key, f"select last_insert_rowid(), {long}")
        assert rowid == [[777777, ROWS + 1]]
        execute(client, "REDISQL.EXEC", key, "create temp table own(x); insert into own values(5)")
        assert execute(client, "REDISQL.EXEC", key, f"select x, {long} from own") == [[5, ROWS + 1]]
        writes = ("with recursive n(i) as (select 1 union all select i + 1 from n limit 30000) "
                  "insert into t select 1000000 + i, 0 from n")
        assert execute(client, "REDISQL.EXEC", key, writes) == [b"DONE", 30000]
        with pytest.raises(Exception, match="may modify the database"):
            execute(client, "REDISQL.QUERY", key, writes)
        execute(client, "REDISQL.UPDATE_STATEMENT", key, "sum", "select sum(b) + 1 from t")
        for _ in range(3):
            assert execute(client, "REDISQL.QUERY_STATEMENT", key, "sum") == [[ROWS + 2]]
        execute(client, "REDISQL.DELETE_STATEMENT", key, "sum")
        with pytest.raises(Exception, match="not present"):
            execute(client, "REDISQL.QUERY_STATEMENT", key, "sum")


@pytest.mark.parametrize("key,path", PATHS)
def test_a_transaction_with_keys_is_seen_whole(key, path):
    with Server() as server:
        client = connect(server)
        filled(client, key, *path)
        over = threading.Event()

        def move():
            own = connect(server)
            while not over.is_set():
                pipe = own.pipeline(transaction=True)
                pipe.execute_command("REDISQL.EXEC", key, "update t set b = b + 1 where a = 7")
                pipe.execute_command("REDISQL.EXEC", key, "update t set b = b - 1 where a = 8")
                pipe.execute()

        mover = threading.Thread(target=move)
        mover.start()
        for _ in range(100):
            assert execute(client, "REDISQL.QUERY_STATEMENT", key, "sum") == [[ROWS, ROWS]]
        over.set()
        mover.join(10)


def test_a_long_read_of_live_keys():
    with Server() as server:
        client = connect(server)
        filled(client, "DB")
        for number in range(50):
            client.hset(f"user:{number}", "age", number)
        execute(client, "REDISQL.EXEC", "DB",
                "create virtual table users using redis_hash('user:', age)")
        text = "select count(*), (select sum(b) from t) from users"
        assert execute(client, "REDISQL.QUERY", "DB", text) == [[50, ROWS]]
