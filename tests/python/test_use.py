"""How applications use redis-py: pipelines, transactions, pub/sub, blocking pops, scans, types."""

import threading
import time

import pytest
import redis


def in_thread(call):
    """Starts call in a thread; the returned function waits for its value."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()

    def result():
        thread.join(timeout=20)
        assert found, "the call did not come back"
        return found[0]

    return result


def wait_until_blocked(client, count=1):
    """Returns once that many clients are blocked on keys, by what the server says of itself."""
    deadline = time.monotonic() + 10
    while client.info("clients")["blocked_clients"] < count:
        assert time.monotonic() < deadline, "nobody is blocked"
        time.sleep(0.002)


def test_pipeline(client):
    pipe = client.pipeline(transaction=False)
    for number in range(10_000):
        pipe.set(f"key:{number}", number).incr(f"key:{number}")
    replies = pipe.execute()
    assert replies[::2] == [True] * 10_000
    assert replies[1::2] == list(range(1, 10_001))


def test_pipeline_goes_on_after_an_error(client):
    client.set("s", "x")
    replies = client.pipeline(transaction=False).set("a", 1).lpush("s", 1).get("a").execute(
        raise_on_error=False
    )
    assert replies[0] is True
    assert isinstance(replies[1], redis.ResponseError)
    assert str(replies[1]).startswith("WRONGTYPE")
    assert replies[2] == "1"


def test_transaction(client):
    pipe = client.pipeline().set("a", 1).incr("a").rpush("l", "x", "y").lrange("l", 0, -1)
    assert pipe.execute() == [True, 2, 2, ["x", "y"]]


def test_transaction_with_a_bad_command_does_nothing(client):
    pipe = client.pipeline().set("a", 1)
    pipe.execute_command("NOSUCH")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        pipe.execute()
    assert client.get("a") is None


def test_transaction_error_at_run_time_leaves_the_rest(client):
    client.set("s", "x")
    replies = client.pipeline().set("a", 1).incr("s").incr("a").execute(raise_on_error=False)
    assert replies[0] is True
    assert isinstance(replies[1], redis.ResponseError)
    assert replies[2] == 2


def test_watch_gives_way_to_another_writer(client, other):
    client.set("balance", 10)
    with client.pipeline() as pipe:
        pipe.watch("balance")
        other.set("balance", 11)
        pipe.multi()
        pipe.set("balance", 99)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.get("balance") == "11"


def test_watch_sees_an_expiry_and_a_flush(client, other):
    for change in (lambda: other.pexpire("k", 0), other.flushdb, lambda: other.rename("k", "l")):
        client.set("k", "v")
        with client.pipeline() as pipe:
            pipe.watch("k")
            change()
            pipe.multi()
            pipe.set("k", "mine")
            with pytest.raises(redis.WatchError):
                pipe.execute()


def test_optimistic_counter_loses_nothing(connect):
    def add_hundred():
        mine = connect()
        for _ in range(100):
            mine.transaction(
                lambda pipe: (pipe.multi(), pipe.set("n", int(value) + 1))
                if (value := pipe.get("n")) else None,
                "n",
            )

    first = connect()
    first.set("n", 1)
    waits = [in_thread(lambda: add_hundred() or True) for _ in range(4)]
    assert all(wait() for wait in waits)
    assert first.get("n") == "401"


def test_publish_subscribe(client, other):
    heard = []
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(**{"news": lambda message: heard.append(message["data"])})
    listener.psubscribe("w*")
    listener.get_message(timeout=5)
    listener.get_message(timeout=5)
    assert other.publish("news", "one") == 1
    assert other.publish("weather", "rain") == 1
    assert other.publish("nobody", "x") == 0
    deadline = time.monotonic() + 10
    pattern = None
    while (pattern is None or not heard) and time.monotonic() < deadline:
        pattern = listener.get_message(timeout=1) or pattern
    assert heard == ["one"]
    assert (pattern["channel"], pattern["data"]) == ("weather", "rain")
    assert other.pubsub_numsub("news") == [("news", 1)]
    assert other.pubsub_numpat() == 1
    listener.close()


def test_messages_keep_their_order(client, other):
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("numbers")
    listener.get_message(timeout=5)
    pipe = other.pipeline(transaction=False)
    for number in range(5000):
        pipe.publish("numbers", number)
    assert pipe.execute() == [1] * 5000
    heard = []
    while len(heard) < 5000:
        message = listener.get_message(timeout=10)
        assert message, f"only {len(heard)} messages came"
        heard.append(int(message["data"]))
    assert heard == list(range(5000))
    listener.close()


def test_blocking_pop_is_woken_by_another_connection(client, other):
    popped = in_thread(lambda: client.blpop(["empty", "queue"], timeout=15))
    wait_until_blocked(other)
    assert other.rpush("queue", "job") == 1
    assert tuple(popped()) == ("queue", "job")
    assert other.exists("queue") == 0


def test_blocking_move_and_sorted_set_pop(client, other):
    moved = in_thread(lambda: client.blmove("from", "to", 15, "LEFT", "RIGHT"))
    wait_until_blocked(other)
    other.rpush("from", "x", "y")
    assert moved() == "x"
    assert other.lrange("to", 0, -1) == ["x"]
    lowest = in_thread(lambda: client.bzpopmin("z", timeout=15))
    wait_until_blocked(other)
    other.zadd("z", {"b": 2, "a": 1})
    assert [str(part) for part in lowest()] in (["z", "a", "1.0"], ["z", "a", "1"])


def test_blocked_clients_are_served_in_their_order(connect, other):
    waits = []
    for number in range(5):
        waits.append(in_thread(lambda: connect().blpop("line", timeout=15)))
        wait_until_blocked(other, number + 1)
    other.rpush("line", *range(5))
    assert [wait()[1] for wait in waits] == ["0", "1", "2", "3", "4"]


def test_blocked_client_is_woken_after_the_whole_transaction(client, other):
    popped = in_thread(lambda: client.blpop("list", timeout=15))
    wait_until_blocked(other)
    other.pipeline().rpush("list", "a").delete("list").rpush("list", "b").execute()
    assert popped()[1] == "b"


def test_blocking_pop_times_out(client):
    started = time.monotonic()
    assert client.blpop("none", timeout=0.2) is None
    assert 0.15 < time.monotonic() - started < 5


def test_scans_see_everything_once(client):
    client.mset({f"scan:{number}": number for number in range(5000)})
    client.hset("hash", mapping={f"f{number}": number for number in range(2000)})
    client.sadd("set", *range(2000))
    client.zadd("zset", {f"m{number}": number for number in range(2000)})
    keys = list(client.scan_iter("scan:*", count=100))
    assert sorted(set(keys)) == sorted(f"scan:{number}" for number in range(5000))
    assert len(dict(client.hscan_iter("hash", count=50))) == 2000
    assert len(set(client.sscan_iter("set", count=50))) == 2000
    assert dict(client.zscan_iter("zset", count=50))["m1999"] == 1999.0
    assert list(client.scan_iter(_type="hash")) == ["hash"]


def test_scan_keeps_its_guarantee_while_keys_come_and_go(client, other):
    client.mset({f"stay:{number}": 1 for number in range(3000)})
    found = set()
    for turn, key in enumerate(client.scan_iter(count=20)):
        found.add(key)
        if turn % 10 == 0:
            other.mset({f"come:{turn}:{number}": 1 for number in range(20)})
            other.delete(*(f"come:{turn - 100}:{number}" for number in range(20)))
        if turn > 50_000:
            break
    assert {f"stay:{number}" for number in range(3000)} <= found


def test_values_are_binary_safe(connect):
    client = connect(decode_responses=False)
    every_byte = bytes(range(256))
    client.set(every_byte, every_byte)
    assert client.get(every_byte) == every_byte
    assert client.append(every_byte, b"\r\n") == 258
    assert client.getrange(every_byte, 256, -1) == b"\r\n"


def test_a_value_of_sixty_four_megabytes(connect):
    client = connect(decode_responses=False, socket_timeout=60)
    value = bytes(range(256)) * (64 << 12)
    client.set("large", value)
    assert client.strlen("large") == len(value)
    assert client.get("large") == value


def test_types_and_their_encodings(client):
    client.set("int", 12345)
    client.set("short", "abc")
    client.set("long", "x" * 100)
    client.rpush("list", *range(10))
    client.sadd("ints", 1, 2, 3)
    client.sadd("words", "a", "b")
    client.hset("hash", mapping={"f": "v"})
    client.zadd("zset", {"m": 1.5})
    names = ["int", "short", "long", "ints", "hash", "zset"]
    encodings = [client.object("encoding", name) for name in names]
    assert encodings == ["int", "embstr", "raw", "intset", "listpack", "listpack"]
    assert [client.type(name) for name in ("int", "list", "words", "hash", "zset", "no")] == [
        "string", "list", "set", "hash", "zset", "none",
    ]


def test_expiry(client):
    assert client.set("k", "v", px=30)
    assert 0 < client.pttl("k") <= 30
    deadline = time.monotonic() + 5
    while client.exists("k"):
        assert time.monotonic() < deadline
    assert client.ttl("k") == -2
    client.set("k", "v", ex=100)
    assert client.expire("k", 50, lt=True)
    assert not client.expire("k", 60, lt=True)
    assert client.persist("k")
    assert client.ttl("k") == -1


def test_sort_geo_bits_and_hyperloglog(client):
    client.rpush("ids", 3, 1, 2)
    client.mset({"weight:1": 30, "weight:2": 20, "weight:3": 10})
    assert client.sort("ids", by="weight:*", get=["#", "weight:*"]) == [
        "3", "10", "2", "20", "1", "30",
    ]
    client.geoadd("towns", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    assert client.geodist("towns", "Palermo", "Catania", "km") == pytest.approx(166.2742, abs=1e-4)
    assert client.geosearch("towns", longitude=15, latitude=37, radius=100, unit="km") == [
        "Catania"
    ]
    assert client.setbit("bits", 7, 1) == 0
    assert client.bitcount("bits") == 1
    assert client.bitfield("bits").set("u8", 8, 255).incrby("u8", 8, 1).execute() == [0, 0]
    client.pfadd("visitors", *range(1000))
    assert abs(client.pfcount("visitors") - 1000) < 30


def test_server_basics(client):
    client.set("k", "v")
    assert client.dbsize() == 1
    assert client.info("server")["redis_version"].startswith("7.")
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    assert client.config_set("maxmemory-policy", "allkeys-lru")
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"
    client.config_set("maxmemory-policy", "noeviction")
    assert client.command_count() > 150
    assert client.memory_usage("k") > 0
    assert abs(client.time()[0] - time.time()) < 5
    assert client.wait(0, 100) == 0


def test_writes_want_the_replicas_that_are_asked_for(client):
    client.set("k", "v")
    client.config_set("min-replicas-to-write", 1)
    try:
        refused = pytest.raises(redis.ResponseError, match="Not enough good replicas")
        with refused:
            client.set("k", "w")
        with refused:
            client.pipeline(transaction=False).set("k", "w").set("l", "w").execute()
        with refused:
            client.pipeline(transaction=True).set("k", "w").get("k").execute()
        with refused:
            client.eval("return redis.call('SET', KEYS[1], 'w')", 1, "k")
        with refused:
            client.eval("#!lua\nreturn redis.call('GET', KEYS[1])", 1, "k")
        assert client.eval("return redis.call('GET', KEYS[1])", 1, "k") == "v"
        harmless = "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])"
        assert client.eval(harmless, 1, "k") == "v"
        assert client.get("k") == "v"
    finally:
        client.config_set("min-replicas-to-write", 0)
    assert client.set("k", "w")
