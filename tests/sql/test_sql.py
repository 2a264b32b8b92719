"""SQL against the built server: what runs beside the event loops, what survives a kill, and keys
and rows that move together.
"""

import pathlib
import sys
import threading
import time

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server  # noqa: E402 (found by the line above)

ENDLESS = (
    "with recursive c(x) as (select 1 union all select x+1 from c) select max(x) from c"
)
ACCOUNTS = 16
START = 1000


def connect(server):
    """A client of a server that has loaded its data."""
    client = redis.Redis(server.host, server.port, socket_timeout=30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            client.ping()
            return client
        except redis.BusyLoadingError:
            time.sleep(0.02)
    raise AssertionError("still loading")


def execute(client, *words):
    """One command, its reply as it is."""
    return client.execute_command(*words)


def table(client, key="DB", *path):
    """Makes a database with a table of three integers and a statement that adds a row."""
    execute(client, "REDISQL.CREATE_DB", key, *path)
    execute(client, "REDISQL.EXEC", key, "create table t(a int, b int, c int)")
    execute(client, "REDISQL.CREATE_STATEMENT", key, "ins", "insert into t values(?1,?2,?3)")


def count(client, key="DB"):
    """Rows of the table."""
    return execute(client, "REDISQL.EXEC", key, "select count(*) from t")[0][0]


def kill(server):
    """Ends the server as a crash would."""
    server.process.kill()
    server.process.wait()


def test_a_runaway_query_holds_up_nobody():
    with Server() as server:
        client = connect(server)
        table(client)
        runaway = redis.Redis(server.host, server.port, socket_timeout=60)
        answers = []

        def run():
            with pytest.raises(redis.ResponseError) as caught:
                execute(runaway, "REDISQL.EXEC", "DB", ENDLESS)
            answers.append(str(caught.value))

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.3)
        slowest = 0
        for number in range(300):
            before = time.monotonic()
            client.set(f"k{number}", number)
            slowest = max(slowest, time.monotonic() - before)
        assert slowest < 1.0, slowest
        assert execute(client, "SQL.CANCEL", "DB") == 1
        thread.join()
        assert "cancelled" in answers[0]
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 2, 3)
        assert count(client) == 1


def test_a_pipeline_answers_in_order_and_each_by_itself():
    with Server() as server:
        client = connect(server)
        for key, path in (("DB", ()), ("FILE", ("pipe.db",))):
            table(client, key, *path)
            execute(client, "REDISQL.EXEC", key, "create unique index u on t(a)")
            pipe = client.pipeline(transaction=False)
            for number in range(200):
                pipe.execute_command("REDISQL.EXEC_STATEMENT", key, "ins", number // 2, 1, 1)
                if number % 50 == 7:
                    pipe.execute_command("REDISQL.EXEC", key, "insert or rollback into t "
                                         "values(0, 0, 0)")
                if number % 50 == 9:
                    pipe.execute_command("REDISQL.EXEC", key, "select count(*) from t")
            replies = pipe.execute(raise_on_error=False)
            inserted = [reply for reply in replies if reply == [b"DONE", 1]]
            errors = [reply for reply in replies if isinstance(reply, redis.ResponseError)]
            assert (len(inserted), len(errors)) == (100, 104)
            counts = [reply[0][0] for reply in replies if isinstance(reply, list)
                      and isinstance(reply[0], list)]
            assert counts == [5, 30, 55, 80]
            assert count(client, key) == 100


def test_rows_survive_a_save_and_a_kill(tmp_path):
    options = {"appendonly": "yes", "appendfsync": "always"}
    with Server(options=options) as server:
        client = connect(server)
        table(client)
        table(client, "FILE", "kept.db")
        for key in ("DB", "FILE"):
            execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", 1, 2, 3)
            execute(client, "REDISQL.EXEC", key,
                    "insert into t values(random(), abs(random()), strftime('%s', 'now'))")
        seen = {key: execute(client, "REDISQL.EXEC", key, "select * from t") for key in
                ("DB", "FILE")}
        kill(server)
        server.start()
        client = connect(server)
        for key in ("DB", "FILE"):
            assert execute(client, "REDISQL.EXEC", key, "select * from t") == seen[key], key
            execute(client, "REDISQL.EXEC_STATEMENT", key, "ins", 4, 5, 6)
            assert count(client, key) == 3
        client.bgrewriteaof()
        deadline = time.monotonic() + 20
        while client.info("persistence")["aof_rewrite_in_progress"] and \
                time.monotonic() < deadline:
            time.sleep(0.05)
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 7, 8, 9)
        kill(server)
        server.start()
        client = connect(server)
        assert (count(client), count(client, "FILE")) == (4, 3)


def test_rows_survive_in_an_rdb_file():
    with Server() as server:
        client = connect(server)
        table(client)
        for number in range(1000):
            execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", number, 2, 3)
        dumped = client.dump("DB")
        client.save()
        kill(server)
        server.start()
        client = connect(server)
        assert count(client) == 1000
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 2, 3)
        client.restore("copy", 0, dumped)
        assert (count(client), count(client, "copy")) == (1001, 1000)


SCRIPT = """
redis.call('REDISQL.EXEC_STATEMENT', KEYS[1], 'move', ARGV[1], ARGV[2], ARGV[3])
redis.call('DECRBY', 'account:' .. ARGV[1], ARGV[3])
redis.call('INCRBY', 'account:' .. ARGV[2], ARGV[3])
return 1
"""


def move(client, source, target, amount, by_script):
    """Moves money in the keys and in the table, in one transaction."""
    if by_script:
        client.eval(SCRIPT, 1, "DB", source, target, amount)
        return
    pipe = client.pipeline(transaction=True)
    pipe.decrby(f"account:{source}", amount)
    pipe.execute_command("REDISQL.EXEC_STATEMENT", "DB", "move", source, target, amount)
    pipe.incrby(f"account:{target}", amount)
    pipe.execute()


def check_accounts(client):
    """Keys and rows say the same, and nothing was lost."""
    while True:
        pipe = client.pipeline(transaction=True)
        pipe.execute_command("REDISQL.EXEC", "DB", "select id, money from account order by id")
        pipe.mget([f"account:{number}" for number in range(ACCOUNTS)])
        try:
            rows, keys = pipe.execute()
            break
        except redis.ResponseError as error:
            assert "database is locked" in str(error), error
            time.sleep(0.002)
    assert [money for _, money in rows] == [int(value) for value in keys]
    assert sum(money for _, money in rows) == ACCOUNTS * START
    assert min(money for _, money in rows) >= 0
    pots = execute(client, "REDISQL.EXEC", "DB", "select sum(money), min(money) from pot")[0]
    assert pots[0] == ACCOUNTS * START and pots[1] >= 0, pots


def prepare_accounts(client):
    """The accounts, in keys and rows."""
    execute(client, "REDISQL.CREATE_DB", "DB")
    execute(client, "REDISQL.EXEC", "DB",
            "create table account(id integer primary key, money int check (money >= 0))")
    for number in range(ACCOUNTS):
        client.set(f"account:{number}", START)
        execute(client, "REDISQL.EXEC", "DB", f"insert into account values({number}, {START})")
    execute(client, "REDISQL.CREATE_STATEMENT", "DB", "move",
            "update account set money = money + iif(id = ?2, ?3, -?3) where id in (?1, ?2)")
    execute(client, "REDISQL.EXEC", "DB",
            "create table pot as select id, money from account")


def move_in_steps(client, source, target, amount):
    """Moves money between pots by several commands of one transaction; some give up half-way."""
    execute(client, "SQL.BEGIN", "DB")
    try:
        execute(client, "SQL.EXEC", "DB", "update pot set money = money - ? where id = ?",
                "VALUES", amount, source)
        left = execute(client, "REDISQL.EXEC", "DB",
                       f"select money from pot where id = {source}")[0][0]
        if left < 0:
            execute(client, "SQL.ROLLBACK")
            return
        execute(client, "SQL.EXEC", "DB", "update pot set money = money + ? where id = ?",
                "VALUES", amount, target)
        if amount % 7 == 0:
            client.connection_pool.disconnect()
            return
        execute(client, "SQL.COMMIT")
    except redis.ResponseError:
        execute(client, "SQL.ROLLBACK")
        raise


def test_keys_and_rows_never_disagree():
    options = {"appendonly": "yes", "appendfsync": "everysec", "threads": "2"}
    with Server(options=options) as server:
        prepare_accounts(connect(server))
        for _ in range(3):
            stop = threading.Event()
            moved = [0] * 16

            def run(worker, moved=moved, stop=stop):
                client = redis.Redis(server.host, server.port, socket_timeout=30,
                                     single_connection_client=worker % 4 == 3)
                number = worker
                try:
                    while not stop.is_set():
                        number = number * 1103515245 + 12345 & 0x7FFFFFFF
                        source, target = number // 7 % ACCOUNTS, number // 131 % ACCOUNTS
                        if source == target:
                            continue
                        try:
                            if worker % 4 == 3:
                                move_in_steps(client, source, target, number // 1000 % 400)
                            else:
                                move(client, source, target, number // 1000 % 400, worker % 2)
                            moved[worker] += 1
                        except redis.ResponseError as error:
                            known = ("CHECK constraint", "database is locked")
                            assert any(text in str(error) for text in known), error
                            time.sleep(0.002)
                except redis.ConnectionError:
                    pass

            threads = [threading.Thread(target=run, args=(worker,)) for worker in range(16)]
            for thread in threads:
                thread.start()
            client = connect(server)
            for _ in range(20):
                check_accounts(client)
                time.sleep(0.05)
            kill(server)
            stop.set()
            for thread in threads:
                thread.join()
            assert sum(moved) > 100 and sum(moved[3::4]) > 10, moved
            server.start()
            check_accounts(connect(server))


def test_live_keys_are_of_one_instant():
    with Server(options={"threads": "2"}) as server:
        client = connect(server)
        execute(client, "REDISQL.CREATE_DB", "DB")
        execute(client, "REDISQL.EXEC", "DB",
                "CREATE VIRTUAL TABLE pair USING redis_string('pair:')")
        client.mset({"pair:a": 0, "pair:b": 0})
        stop = threading.Event()

        def write():
            own = redis.Redis(server.host, server.port)
            number = 0
            while not stop.is_set():
                number += 1
                own.mset({"pair:a": number, "pair:b": number})

        thread = threading.Thread(target=write)
        thread.start()
        for _ in range(200):
            rows = execute(client, "REDISQL.EXEC", "DB",
                           "select x.value, y.value from pair x join pair y on y.key = 'pair:b' "
                           "where x.key = 'pair:a'")
            assert rows[0][0] == rows[0][1], rows
        stop.set()
        thread.join()
        # Inside MULTI they are those of the transaction so far.
        pipe = client.pipeline(transaction=True)
        pipe.set("pair:a", "new")
        pipe.execute_command("REDISQL.EXEC", "DB", "select value from pair where key = 'pair:a'")
        pipe.execute_command("REDISQL.EXEC", "DB", "select count(*) from pair")
        assert pipe.execute()[1:] == [[[b"new"]], [[2]]]
