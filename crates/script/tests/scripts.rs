//! Scripts and functions through their commands, without a server: conversions, error texts, the
//! sandbox, the libraries, what is logged, and that no script takes the process down.

use commands::testing::Client;
use proptest::prelude::*;
use script::FAMILIES;

fn client() -> Client {
    Client::with(FAMILIES)
}

fn eval(client: &mut Client, script: &str) -> String {
    client.run_words(&["EVAL", script, "1", "key", "arg"])
}

/// Runs scripts in order on one keyspace and compares the replies.
fn check(cases: &[(&str, &str)]) {
    let mut client = client();
    for (script, want) in cases {
        assert_eq!(eval(&mut client, script), *want, "{script}");
    }
}

/// Runs scripts whose errors must hold a text.
fn check_errors(cases: &[(&str, &str)]) {
    let mut client = client();
    for (script, want) in cases {
        let reply = eval(&mut client, script);
        assert!(reply.starts_with('-') && reply.contains(want), "{script}: {reply}");
    }
    assert_eq!(eval(&mut client, "return 1"), ":1");
}

#[test]
fn values_become_replies() {
    check(&[
        ("return 3.99", ":3"),
        ("return 'a'", "$1 a"),
        ("return {1, 'a', {2}, true, false, nil, 9}", "*5 :1 $1 a *1 :2 :1 $-1"),
        ("return nil", "$-1"),
        ("return {ok = 'FINE'}", "+FINE"),
        ("return {err = 'MY error'}", "-MY error"),
        ("return {double = 1.5}", "$3 1.5"),
        ("return {big_number = '12'}", "$2 12"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "$1 x"),
        ("return {map = {a = 1}}", "*2 $1 a :1"),
        ("return {set = {a = true}}", "*1 $1 a"),
        ("return KEYS[1] .. ARGV[1] .. #KEYS", "$7 keyarg1"),
        ("return tostring(1e15) .. ' ' .. 2^53", "$24 1e+15 9.007199254741e+15"),
    ]);
}

/// What nobody looks at is not made; whoever looks gets it, and errors are raised in any case.
#[test]
fn replies_that_are_dropped_are_still_there_for_who_looks() {
    check(&[
        ("redis.call('SET', 'a', 'x') return redis.call('GET', 'a')", "$1 x"),
        ("return select('#', redis.call('GET', 'a'))", ":1"),
        ("local t = {redis.call('GET', 'a'), redis.call('GET', 'a')} return #t", ":2"),
        ("local a, b = redis.call('GET', 'a') return {a, b == nil}", "*2 $1 x :1"),
        ("local ok, a = pcall(redis.call, 'GET', 'a') return a", "$1 x"),
        (
            "local co = coroutine.wrap(function() redis.call('SET', 'a', 'y') \
          return redis.call('GET', 'a') end) return co()",
            "$1 y",
        ),
        ("for i = 1, 3 do redis.call('INCR', 'i') end return redis.call('GET', 'i')", "$1 3"),
        ("redis.pcall('INCR', 'a') return 1", ":1"),
        ("return pcall(function() redis.call('INCR', 'a') end) == false", ":1"),
    ]);
    check_errors(&[("redis.call('INCR', KEYS[1], 'x') return 1", "Wrong number of args")]);
}

#[test]
fn a_reply_that_is_the_scripts_value_is_what_the_value_would_be() {
    const F: &str = "local function f(k) return redis.call('GET', k) end ";
    check(&[
        ("return redis.call('SET', 'a', 'x')", "+OK"),
        ("return redis.call('GET', 'a')", "$1 x"),
        ("return (redis.call('GET', 'a'))", "$1 x"),
        ("return redis.call('GET', 'a'), 2", "$1 x"),
        ("return redis.pcall('GET', 'a')", "$1 x"),
        ("return redis.call('GET', 'none')", "$-1"),
        ("return redis.call('INCRBY', 'few', 7)", ":7"),
        ("return redis.call('INCRBY', 'many', '9007199254740993')", ":9007199254740992"),
        ("return pcall(redis.call, 'GET', 'a')", ":1"),
        ("return coroutine.wrap(function() return redis.call('GET', 'a') end)()", "$1 x"),
        ("return coroutine.wrap(function() return redis.call('GET', 'a') end)() .. 'y'", "$2 xy"),
        (
            "return setmetatable({}, {__index = function(_, k) return redis.call('GET', k) end}).a",
            "$1 x",
        ),
        (
            "local t = setmetatable({}, {__index = function(_, k) return redis.call('GET', k) end})
             return t.a .. 'y'",
            "$2 xy",
        ),
    ]);
    let mut client = client();
    eval(&mut client, "redis.call('SET', 'a', 'x')");
    for (rest, reply) in [
        ("return f('a')", "$1 x"),
        ("return f('a') .. 'y'", "$2 xy"),
        ("return {f('a')}", "*1 $1 x"),
        ("local a = f('a') return a .. f('a')", "$2 xx"),
        ("f('a') return 5", ":5"),
        ("local function g(k) return f(k) end return g('a')", "$1 x"),
        ("local function g(k) return f(k) end return g('a') == 'x'", ":1"),
    ] {
        assert_eq!(eval(&mut client, &format!("{F}{rest}")), reply, "{rest}");
    }
    let mut resp3 = client.resp3();
    assert_eq!(eval(&mut resp3, "return redis.call('GET', 'none')"), "_");
    assert_eq!(eval(&mut resp3, "redis.setresp(3) return redis.call('SET', 'a', 'x')"), "+OK");
}

#[test]
fn replies_become_values() {
    check(&[
        ("return redis.call('SET', 'a', 'x').ok", "$2 OK"),
        ("return redis.call('GET', 'a')", "$1 x"),
        ("return redis.call('GET', 'none') == false", ":1"),
        ("return redis.call('INCRBY', 'n', 2.0)", ":2"),
        ("return redis.pcall('INCR', 'a').err", "$43 ERR value is not an integer or out of range"),
    ]);
    let mut resp3 = client().resp3();
    assert_eq!(eval(&mut resp3, "redis.setresp(3) return redis.call('GET','x') == nil"), "#t");
    let hash = "redis.call('HSET', 'h', 'f', 'v') redis.setresp(3)
                return redis.call('HGETALL', 'h').map.f";
    assert_eq!(eval(&mut resp3, hash), "$1 v");
    assert_eq!(
        eval(&mut resp3, "redis.setresp(3) return redis.call('HGETALL','h')"),
        "%1 $1 f $1 v"
    );
    assert_eq!(eval(&mut resp3, "return {double = 1.5}"), ",1.5");
}

#[test]
fn errors_say_where() {
    check_errors(&[
        (
            "return foo",
            "user_script:1: Script attempted to access nonexistent global variable 'foo'",
        ),
        ("\n\nerror('boom')", "-ERR user_script:3: boom script: "),
        ("error({err = 'MY text'})", "-MY text script: "),
        ("redis.call('NOPE')", "ERR Unknown Redis command called from script script: "),
        ("redis.call('GET')", "ERR Wrong number of args calling Redis command from script"),
        ("redis.call('EVAL', 'x', 0)", "ERR This Redis command is not allowed from script"),
        ("redis.call()", "Please specify at least one argument for this redis lib call"),
        ("redis.call({})", "Lua redis lib command arguments must be strings or integers"),
        ("retu", "ERR Error compiling script (new function): user_script:1:"),
        ("return redis.error_reply('My Err')", "-My Err"),
        ("cjson.decode('[1,')", "Expected value but found T_END at character 4"),
        ("cmsgpack.unpack('\\193')", "Bad data format in input."),
        ("struct.unpack('I4', 'a')", "data string too short"),
    ]);
}

#[test]
fn the_sandbox_holds() {
    check_errors(&[
        ("x = 1", "Attempt to modify a readonly table"),
        ("_G.x = 1", "Attempt to modify a readonly table"),
        ("rawset(_G, 'x', 1)", "Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "Attempt to modify a readonly table"),
        ("getmetatable(_G).__index = {}", "Attempt to modify a readonly table"),
        ("getmetatable('').__index = {}", "Attempt to modify a readonly table"),
        ("redis.call = 1", "Attempt to modify a readonly table"),
        ("table.insert(redis, 1)", "Attempt to modify a readonly table"),
        ("string.rep = 1", "Attempt to modify a readonly table"),
        ("for k, v in pairs(_G) do end; dofile('x')", "variable 'dofile'"),
        ("print(1)", "variable 'print'"),
        ("return loadstring(string.dump(function() end))()", "attempt to call a nil value"),
        (
            "local f = true; load(function() if f then f = nil return '\\27Lua' end end)()",
            "nil value",
        ),
    ]);
    let mut client = client();
    let copied =
        "local t for _, v in ipairs({pairs(redis)}) do if type(v) == 'table' then t = v end
                  end t.call = 1 return type(redis.call)";
    assert_eq!(eval(&mut client, copied), "$8 function");
}

#[test]
fn bombs_end_in_errors() {
    check_errors(&[
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("local t = {} while true do t[#t + 1] = {} .. '' end", "attempt to concatenate"),
        ("return unpack({}, 0, 2147483647)", "too many results to unpack"),
        ("return string.find(('a'):rep(9999), ('a?'):rep(9999))", "pattern too complex"),
        ("local t = {} t[1] = t return cjson.encode(t)", "excessive nesting"),
        ("return cjson.decode(('['):rep(5000))", "too many nested data structures"),
    ]);
    let mut client = client();
    let caught = "local s = 'x' local ok = pcall(function() while true do s = s .. s end end)
                  return tostring(ok)";
    assert_eq!(eval(&mut client, caught), "$5 false");
    assert_eq!(eval(&mut client, "return #cmsgpack.pack({{{{}}}})"), ":4");
}

#[test]
fn scripts_are_known_by_their_digests() {
    let mut client = client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let cases: [(&str, &str); 13] = [
        (&format!("EVALSHA {sha} 0"), "-NOSCRIPT No matching script. Please use EVAL."),
        ("SCRIPT LOAD 'return 1'", &format!("$40 {sha}")),
        (&format!("EVALSHA {} 0", sha.to_uppercase()), ":1"),
        (&format!("SCRIPT EXISTS {sha} {}", "0".repeat(40)), "*2 :1 :0"),
        (&format!("SCRIPT SHOW {sha}"), "$8 return 1"),
        ("SCRIPT FLUSH x", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        (&format!("SCRIPT EXISTS {sha}"), "*1 :0"),
        (&format!("EVALSHA {sha} 0"), "-NOSCRIPT No matching script. Please use EVAL."),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
        ("EVAL 'return 1' x", "-ERR value is not an integer or out of range"),
        ("EVAL 'return 1' 1", "-ERR Number of keys can't be greater than number of args"),
        ("EVAL 'return 1' -1", "-ERR Number of keys can't be negative"),
    ];
    client.check(&cases);
}

#[test]
fn old_scripts_of_eval_make_room() {
    let mut client = client();
    let kept = client.run("SCRIPT LOAD 'return 0'");
    for number in 1..=600 {
        client.now_ms += 1;
        assert_eq!(eval(&mut client, &format!("return {number}")), format!(":{number}"));
    }
    let counts = script::scripts::counts(&client.core.registry);
    assert_eq!((counts.scripts, counts.evicted), (501, 100));
    assert_eq!(client.run(&format!("EVALSHA {} 0", &kept[4..])), ":0");
}

#[test]
fn read_only_scripts_write_nothing() {
    let mut client = client();
    let set = "return redis.call('SET', KEYS[1], 'x')";
    let refused = "Write commands are not allowed from read-only scripts.";
    assert!(client.run_words(&["EVAL_RO", set, "1", "k"]).contains(refused));
    let flagged = format!("#!lua flags=no-writes\n{set}");
    assert!(client.run_words(&["EVAL", &flagged, "1", "k"]).contains(refused));
    let plain = format!("#!lua\n{set}");
    let reply = client.run_words(&["EVAL_RO", &plain, "1", "k"]);
    assert_eq!(reply, "-ERR Can not execute a script with write flag using *_ro command.");
    assert_eq!(client.run("EXISTS k"), ":0");
}

const LIBRARY: &str = "#!lua name=mine
local function put(keys, args) return redis.call('SET', keys[1], args[1]) end
redis.register_function('put', put)
redis.register_function{
  function_name = 'look', callback = function(keys) return redis.call('GET', keys[1]) end,
  flags = {'no-writes'}, description = 'Looks.'}";

#[test]
fn functions_are_called() {
    let mut client = client();
    assert_eq!(client.run_words(&["FUNCTION", "LOAD", LIBRARY]), "$4 mine");
    let again = client.run_words(&["FUNCTION", "LOAD", LIBRARY]);
    assert_eq!(again, "-ERR Library 'mine' already exists");
    assert_eq!(client.run_words(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]), "$4 mine");
    client.check(&[
        ("FCALL put 1 k v", "+OK"),
        ("FCALL PUT 1 k w", "+OK"),
        ("FCALL_RO look 1 k", "$1 w"),
        ("FCALL_RO put 1 k v", "-ERR Can not execute a script with write flag using *_ro command."),
        ("FCALL nope 0", "-ERR Function not found"),
        ("FCALL put x", "-ERR Bad number of keys provided"),
        ("FUNCTION DELETE nope", "-ERR Library not found"),
        ("FUNCTION LIST LIBRARYNAME x*", "*0"),
    ]);
    let dump = client.reply(&["FUNCTION", "DUMP"]);
    let start = dump.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    let payload = dump[start..dump.len() - 2].to_vec();
    let restore = |client: &mut Client, how: &str| {
        client.run_words(&[b"FUNCTION".as_slice(), b"RESTORE", &payload, how.as_bytes()])
    };
    assert_eq!(restore(&mut client, "APPEND"), "-ERR Library mine already exists");
    assert_eq!(restore(&mut client, "REPLACE"), "+OK");
    client.check(&[("FUNCTION FLUSH", "+OK"), ("FCALL look 1 k", "-ERR Function not found")]);
    assert_eq!(restore(&mut client, "FLUSH"), "+OK");
    assert_eq!(client.run("FCALL look 1 k"), "$1 w");
}

#[test]
fn libraries_that_are_wrong_are_refused() {
    let mut client = client();
    for (code, want) in [
        ("#!lua name=a\nreturn 1", "No functions registered"),
        ("#!lua name=a-b\nreturn 1", "Library names can only contain"),
        ("#!js name=a\nreturn 1", "Engine 'js' not found"),
        ("#!lua name=a\nx = 1", "Attempt to modify a readonly table"),
        ("#!lua name=a\nredis.call('PING')", "nonexistent global variable 'call'"),
        ("#!lua name=a\nwhile true do end", "FUNCTION LOAD timeout"),
        ("#!lua name=a\nredis.register_function('f')", "calling redis.register_function with"),
        ("#!lua name=a\nredis.register_function('f', 1)", "second argument to"),
        ("#!lua name=a\nretu", "Error compiling function: user_function:2:"),
    ] {
        let reply = client.run_words(&["FUNCTION", "LOAD", code]);
        assert!(reply.starts_with("-ERR") && reply.contains(want), "{code}: {reply}");
    }
    assert_eq!(client.run_words(&["FUNCTION", "LOAD", LIBRARY]), "$4 mine");
}

#[test]
fn the_log_has_effects() {
    let mut client = client();
    let script = "EVAL \"redis.call('SET', 'a', 1) redis.call('INCR', 'b')\" 0";
    let logged = client.logged(script);
    assert!(!logged.is_empty() && logged.iter().all(|line| !line.contains("EVAL")), "{logged:?}");
    assert!(logged.iter().any(|line| line.contains("SET a 1")), "{logged:?}");
    assert!(client.logged("EVAL 'return redis.call(\"GET\", \"a\")' 0").is_empty());
    let load = client.logged("FUNCTION FLUSH");
    assert_eq!(load, ["FUNCTION FLUSH"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn packed_values_come_back(values in proptest::collection::vec(any::<i32>(), 0..20)) {
        let list: Vec<String> = values.iter().map(i32::to_string).collect();
        let list = list.join(",");
        let mut client = client();
        let pairs = [("cmsgpack.pack", "cmsgpack.unpack"), ("cjson.encode", "cjson.decode")];
        for (pack, unpack) in pairs {
            let script = format!("return table.concat({unpack}({pack}({{{list}}})), ',')");
            prop_assert_eq!(eval(&mut client, &script), format!("${} {list}", list.len()));
        }
    }

    #[test]
    fn no_text_takes_the_process_down(
        text in "(if|then|do|end|local|function|return|a|b|1|'x'|=|\\+|\\(|\\)|\\{|\\}|,| |\\n)*",
    ) {
        let mut client = client();
        // What it says does not matter, but that it says something.
        prop_assert!(!eval(&mut client, &text).is_empty());
    }

    #[test]
    fn no_bytes_take_unpackers_down(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut client = client();
        for function in ["cmsgpack.unpack", "cjson.decode"] {
            let script = format!("return {{pcall({function}, ARGV[1])}}");
            let words = [b"EVAL".as_slice(), script.as_bytes(), b"0", &bytes];
            prop_assert!(client.run_words(&words).starts_with('*'));
        }
        let words = [b"FUNCTION".as_slice(), b"RESTORE", &bytes];
        prop_assert!(client.run_words(&words).starts_with("-ERR"));
    }
}
