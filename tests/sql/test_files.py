"""SQL databases and files: loaded, attached, saved, and which files are out of reach."""

import os
import pathlib
import sqlite3
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_sql import Server, connect, count, execute, kill, table  # noqa: E402
from test_transactions import own, refused  # noqa: E402


def make(path, rows):
    """A SQLite file with a table of so many rows."""
    with sqlite3.connect(path) as file:
        file.execute("create table other(a, b)")
        file.executemany("insert into other values(?, ?)", [(n, f"row {n}") for n in range(rows)])
    file.close()


def folder(server):
    """The server's folder."""
    return server.folder


@pytest.mark.parametrize("key,path", [("DB", ()), ("FILE", ("load.db",))])
def test_a_file_is_loaded(key, path):
    with Server(options={"appendonly": "yes", "appendfsync": "always"}) as server:
        client = connect(server)
        make(folder(server) / "given.db", 1000)
        table(client, key, *path)
        assert execute(client, "SQL.LOAD", key, "given.db") == b"OK"
        text = "select count(*), max(b) from other"
        assert execute(client, "REDISQL.EXEC", key, text) == [[1000, b"row 999"]]
        assert "no such table: t" in refused(client, "REDISQL.EXEC", key, "select * from t")
        execute(client, "REDISQL.EXEC", key, "delete from other where a >= 10")
        os.remove(folder(server) / "given.db")
        kill(server)
        server.start()
        client = connect(server)
        assert execute(client, "REDISQL.EXEC", key, text) == [[10, b"row 9"]]


def test_files_that_are_not_loaded():
    with Server() as server:
        client = connect(server)
        table(client)
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 2, 3)
        place = folder(server)
        (place / "text.db").write_text("this is no database, whatever its name says" * 100)
        make(place / "torn.db", 5000)
        with open(place / "torn.db", "r+b") as file:
            file.seek(4096 * 3)
            file.write(b"\xff" * 4096 * 4)
        os.symlink("/etc/passwd", place / "link.db")
        assert "SQLITE_NOTADB" in refused(client, "SQL.LOAD", "DB", "text.db")
        assert "SQLITE_CORRUPT" in refused(client, "SQL.LOAD", "DB", "torn.db")
        assert "no file none.db" in refused(client, "SQL.LOAD", "DB", "none.db")
        for path in ("../x.db", "/etc/passwd", "link.db", "file:x.db", "a/../../x", ""):
            assert "outside" in refused(client, "SQL.LOAD", "DB", path), path
            assert "outside" in refused(client, "SQL.ATTACH", "DB", path, "x"), path
        for path in ("../x.db", "/etc/x.db", "link.db", "file:x.db"):
            assert "outside" in refused(client, "SQL.SAVE", "DB", path), path
            assert "outside" in refused(client, "SQL.CREATE", "other", path), path
        assert count(client) == 1
        client.execute_command("SQL.CREATE", "F", "inside.db")
        image = client.dump("F")
        assert b"inside.db" in image
        assert str(place).encode() not in image


def test_attached_files_are_read():
    with Server(options={"appendonly": "yes", "appendfsync": "always"}) as server:
        client = connect(server)
        make(folder(server) / "given.db", 3)
        table(client)
        execute(client, "REDISQL.EXEC_STATEMENT", "DB", "ins", 1, 2, 3)
        assert execute(client, "SQL.ATTACH", "DB", "given.db", "far") == b"OK"
        join = "select b.b from t join far.other b on b.a = t.a"
        assert execute(client, "REDISQL.EXEC", "DB", join) == [[b"row 1"]]
        assert "only read" in refused(client, "SQL.EXEC", "DB", "delete from far.other")
        assert "only read" in refused(
            client, "SQL.EXEC", "DB", "insert into t select a, a, a from far.other")
        assert "already in use" in refused(client, "SQL.ATTACH", "DB", "given.db", "far")
        for name in ("main", "a b", "1x", "x\";--"):
            assert "letters" in refused(client, "SQL.ATTACH", "DB", "given.db", name)
        assert "not authorized" in refused(client, "SQL.EXEC", "DB", "attach 'given.db' as y")
        assert "not authorized" in refused(client, "SQL.EXEC", "DB", "detach far")
        reader = own(server)
        execute(reader, "SQL.BEGIN", "DB", "READ")
        assert execute(reader, "REDISQL.EXEC", "DB", join) == [[b"row 1"]]
        assert "attachments" in refused(reader, "SQL.DETACH", "DB", "far")
        client.execute_command("COPY", "DB", "DB2")
        assert execute(client, "REDISQL.EXEC", "DB2", join) == [[b"row 1"]]
        kill(server)
        server.start()
        client = connect(server)
        assert execute(client, "REDISQL.EXEC", "DB", join) == [[b"row 1"]]
        assert execute(client, "SQL.DETACH", "DB", "far") == b"OK"
        assert "no such table" in refused(client, "REDISQL.EXEC", "DB", join)
        assert "nothing is attached" in refused(client, "SQL.DETACH", "DB", "far")
        execute(client, "SQL.ATTACH", "DB", "given.db", "far")
        kill(server)
        os.remove(server.folder / "given.db")
        server.start()
        assert count(connect(server)) == 1


def test_only_one_folder_is_read():
    with Server() as server:
        client = connect(server)
        place = folder(server)
        (place / "lent").mkdir()
        make(place / "lent" / "given.db", 3)
        make(place / "own.db", 3)
        table(client)
        client.config_set("sql-attach-dir", "lent")
        assert "no file" in refused(client, "SQL.ATTACH", "DB", "own.db", "x")
        assert execute(client, "SQL.ATTACH", "DB", "given.db", "x") == b"OK"


def test_a_database_stays_within_its_size():
    with Server(options={"sql-database-bytes-max": "200kb"}) as server:
        client = connect(server)
        table(client)
        text = ("with recursive c(x) as (select 1 union all select x + 1 from c where x < 50000) "
                "insert into t select x, x, x from c")
        assert "SQLITE_FULL" in refused(client, "SQL.EXEC", "DB", text)
        assert count(client) == 0
        assert "not authorized" in refused(client, "SQL.EXEC", "DB", "pragma max_page_count=9999")
        client.config_set("sql-database-bytes-max", 0)
        execute(client, "SQL.EXEC", "DB", text)
        assert count(client) == 50000
        client.config_set("sql-rows-max", 10)
        assert "more rows or bytes" in refused(client, "SQL.EXEC", "DB", "select * from t")
