"""Limits of commands and databases against the built server: on every thread SQL runs on, and after
a restart.
"""

import pathlib
import sys
import threading

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server  # noqa: E402 (found by the line above)
from test_sql import ENDLESS, connect, count, execute, kill, table  # noqa: E402

SORT = (
    "with recursive n(i) as (select 1 union all select i+1 from n limit 20000) "
    "select length(s) from (select hex(randomblob(500)) s from n order by 1) limit 1"
)
TIMED_OUT = "It was impossible to return the whole result"
TOO_MUCH = "the statement takes more memory"


def test_a_command_is_bounded_wherever_it_runs():
    with Server() as server:
        client = connect(server)
        table(client)
        table(client, "FILE", "limited.db")
        for key in ("DB", "FILE"):
            for words in (("SQL.QUERY", key, ENDLESS), ("SQL.EXEC", key, ENDLESS)):
                with pytest.raises(redis.ResponseError, match=TIMED_OUT):
                    execute(client, *words, "TIMEOUT", 30)
            # A writer: nothing of it stays.
            endless = f"insert into t {ENDLESS.replace('max(x)', 'x, x, x')}"
            with pytest.raises(redis.ResponseError, match=TIMED_OUT):
                execute(client, "SQL.EXEC", key, endless, "TIMEOUT", 30)
            with pytest.raises(redis.ResponseError, match=TOO_MUCH):
                execute(client, "SQL.QUERY", key, SORT, "MEMORY", 5_000_000)
            assert count(client, key) == 0
        # Beside others in one group, each is bounded by itself.
        pipeline = client.pipeline(transaction=False)
        for number in range(20):
            pipeline.execute_command("REDISQL.EXEC_STATEMENT", "FILE", "ins", number, 2, 3)
            pipeline.execute_command("SQL.EXEC", "FILE", endless, "TIMEOUT", 5)
        replies = pipeline.execute(raise_on_error=False)
        assert [isinstance(reply, Exception) for reply in replies] == [False, True] * 20
        assert count(client, "FILE") == 20


def test_transactions_and_cursors_are_bounded():
    with Server() as server:
        client = redis.Redis(server.host, server.port, single_connection_client=True)
        table(client)
        execute(client, "SQL.LIMITS", "DB", "TIMEOUT", 30)
        execute(client, "SQL.BEGIN", "DB")
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 2, 3)
        with pytest.raises(redis.ResponseError, match=TIMED_OUT):
            execute(client, "SQL.EXEC", "DB", ENDLESS)
        execute(client, "SQL.ROLLBACK")
        opened = execute(client, "SQL.CURSOR", "DB", ENDLESS)
        with pytest.raises(redis.ResponseError, match=TIMED_OUT):
            execute(client, "SQL.FETCH", opened[1])
        opened = execute(client, "SQL.CURSOR", "DB", SORT, "MEMORY", 5_000_000, "TIMEOUT", 20000)
        with pytest.raises(redis.ResponseError, match=f"{TOO_MUCH}|{TIMED_OUT}"):
            execute(client, "SQL.FETCH", opened[1])
        with pytest.raises(redis.ResponseError, match="a cursor has no ROWS"):
            execute(client, "SQL.CURSOR", "DB", "select 1", "ROWS", 5)


def test_limits_are_kept_and_stop_no_replay(tmp_path):
    options = {"appendonly": "yes", "appendfsync": "always"}
    with Server(options=options) as server:
        client = connect(server)
        table(client)
        table(client, "FILE", "kept.db")
        for key in ("DB", "FILE"):
            # Five rows are answered, which the limits that come after would not allow.
            execute(client, "SQL.EXEC", key, "insert into t values (1,1,1), (2,2,2), (3,3,3), "
                    "(4,4,4), (5,5,5) returning a")
            execute(client, "SQL.LIMITS", key, "ROWS", 2, "MEMORY", 50_000_000)
        kill(server)
        server.start()
        client = connect(server)
        for key in ("DB", "FILE"):
            assert count(client, key) == 5
            told = execute(client, "SQL.LIMITS", key)
            assert told[3] == 2 and told[7] == 50_000_000, told
            with pytest.raises(redis.ResponseError):
                execute(client, "REDISQL.EXEC", key, "select a from t")
            # Readers beside the writer know them, too.
            with pytest.raises(redis.ResponseError):
                execute(client, "REDISQL.QUERY", key, "select a from t order by random()")


def test_what_many_do_at_once_stays_bounded():
    with Server() as server:
        client = connect(server)
        table(client)
        execute(client, "SQL.LIMITS", "DB", "TIMEOUT", 50)
        errors = []

        def run():
            own = connect(server)
            try:
                execute(own, "SQL.QUERY", "DB", ENDLESS)
            except redis.ResponseError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(errors) == 8 and all(error.startswith(TIMED_OUT) for error in errors), errors
