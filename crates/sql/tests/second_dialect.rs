//! RediSQL's second dialect and zeeSQL's: words in any order, replies with a header.

mod common;

use common::{client, with_table};

#[test]
fn databases_are_made_again_unless_they_must_be_new() {
    client().check(&[
        ("REDISQL.V2.CREATE_DB d", "*1 *1 $2 OK"),
        ("REDISQL.V2.CREATE_DB d", "*1 *1 $2 OK"),
        ("redisql.v2.create_db d can_exist", "*1 *1 $2 OK"),
        ("REDISQL.V2.CREATE_DB d CAN_EXISTS", "*1 *1 $2 OK"),
        ("REDISQL.V2.CREATE_DB d MUST_CREATE", "-Database already exists"),
        ("REDISQL.V2.CREATE_DB e MUST_CREATE", "*1 *1 $2 OK"),
        (
            "REDISQL.V2.CREATE_DB f MUST_CREATE CAN_EXIST",
            "-Provided both CAN_EXIST and MUST_CREATE flags",
        ),
        ("SET s 1", "+OK"),
        ("ZEESQL.CREATE_DB s", "-Key does not belong to us"),
        ("ZEESQL.CREATE_DB z PATH :memory:", "*1 *1 $2 OK"),
        ("ZEESQL.EXEC none COMMAND 'select 1'", "-Key does not exists"),
        ("ZEESQL.EXEC s COMMAND 'select 1'", "-Key does not belong to us"),
    ]);
}

const ROWS: &str = "*5 *1 $6 RESULT *2 $1 a $1 b *2 $3 INT $4 TEXT *2 :1 $1 x *2 :2 $1 y";

#[test]
fn rows_come_under_a_header() {
    with_table().check(&[
        ("REDISQL.V2.EXEC DB COMMAND 'select * from t'", ROWS),
        ("REDISQL.EXEC DB COMMAND 'select * from t'", ROWS),
        ("ZEESQL.QUERY DB command 'select * from t' now", ROWS),
        ("REDISQL.V2.EXEC DB WHATEVER COMMAND 'select * from t' READ_ONLY", ROWS),
        (
            "REDISQL.V2.EXEC DB NO_HEADER COMMAND 'select * from t'",
            "*3 *1 $6 RESULT *2 :1 $1 x *2 :2 $1 y",
        ),
        ("REDISQL.V2.EXEC DB COMMAND 'select * from t where 0'", "*2 *1 $4 DONE *1 :0"),
        ("REDISQL.V2.EXEC DB COMMAND 'delete from t where a = ?1' ARGS 1", "*2 *1 $4 DONE *1 :1"),
        (
            "REDISQL.V2.EXEC DB COMMAND \"select NULL, 1.5, x'00'\"",
            "*4 *1 $6 RESULT *3 $4 NULL $3 1.5 $5 x'00' *3 $4 NULL $5 FLOAT $4 BLOB \
             *3 $-1 $3 1.5 $1 \0",
        ),
    ]);
}

#[test]
fn words_that_do_not_fit_are_refused() {
    let misuse = "-RediSQL MISUSE, only parameters in the form `?NNN`, where `N` is a digit, are \
                  supported, also no gap should be present.";
    with_table().check(&[
        ("REDISQL.V2.EXEC DB", "-Command incomplete, no `COMMAND` nor `STATEMENT` fields"),
        ("REDISQL.V2.EXEC DB COMMAND a STATEMENT b", "-Provided both STATEMENT and QUERY keywords"),
        ("REDISQL.V2.EXEC DB COMMAND", "-No query provided"),
        ("REDISQL.V2.EXEC DB COMMAND 'select ?1, ?2' ARGS 1", misuse),
        ("REDISQL.V2.EXEC DB COMMAND 'select ?1' ARGS 1 2", misuse),
        ("ZEESQL.EXEC DB NO_HEADER COMMAND 'select ?1, ?2' ARGS 1", "*2 *1 $6 RESULT *2 :1 $-1"),
        (
            "REDISQL.V2.EXEC DB COMMAND 'select 1' INTO s",
            "-Asked a STREAM for a query that is not READ_ONLY",
        ),
        (
            "REDISQL.V2.QUERY DB COMMAND 'select 1' INTO s NO_HEADER",
            "-Asked for a STREAM without header",
        ),
    ]);
}

#[test]
fn rows_go_into_streams() {
    let mut client = with_table();
    let reply = client.run("REDISQL.V2.QUERY DB INTO out COMMAND 'select a from t'");
    assert!(reply.starts_with("*2 *1 $6 RESULT *4 $3 out $15 "), "{reply}");
    let reply =
        client.run("ZEESQL.EXEC DB INTO out COMMAND 'insert into t values(3,3) returning a'");
    assert!(reply.ends_with(" :1"), "{reply}");
    client.check(&[("XLEN out", ":3")]);
}

#[test]
fn statements_are_listed() {
    let list = "*4 *1 $6 RESULT *4 $10 identifier $3 SQL $16 parameters_count $9 read_only \
                *4 $4 TEXT $4 TEXT $3 INT $3 INT *4 $3 get $34 select b from t \
                where a = ?1       :1 :1";
    with_table().check(&[
        ("REDISQL.V2.STATEMENT DB NEW get 'select b from t where a = ?1'", "*1 *1 $2 OK"),
        (
            "REDISQL.V2.STATEMENT DB NEW get 'select 1'",
            "-The statement is already present in the database, try with UPDATE_STATEMENT",
        ),
        (
            "REDISQL.V2.STATEMENT DB NEW get 'select b from t where a = ?1      ' CAN_UPDATE",
            "*1 *1 $2 OK",
        ),
        ("REDISQL.STATEMENT DB LIST", list),
        ("REDISQL.V2.STATEMENT DB SHOW get NOW", list),
        ("REDISQL.V2.STATEMENT DB SHOW nope", "-The statement is not present in the database"),
        (
            "REDISQL.V2.STATEMENT DB UPDATE nope 'select 1'",
            "-The statement is not present in the database, impossible to update it.",
        ),
        ("ZEESQL.STATEMENT DB UPDATE new 'select 1' CAN_CREATE", "*1 *1 $2 OK"),
        ("REDISQL.V2.EXEC DB NO_HEADER STATEMENT get ARGS 2", "*2 *1 $6 RESULT *1 $1 y"),
        ("ZEESQL.STATEMENT DB DELETE new", "*1 *1 $2 OK"),
        ("REDISQL.V2.STATEMENT DB", "-No action provided to STATEMENT"),
    ]);
}

#[test]
fn zee_answers_json_and_copies() {
    with_table().check(&[
        (
            "ZEESQL.QUERY DB COMMAND 'select * from t where a = 1' JSON",
            "$78 {\"rows\":[{\"a\":1,\"b\":\"x\"}],\"number_of_rows\":1,\
             \"columns\":{\"a\":\"INT\",\"b\":\"TEXT\"}}",
        ),
        (
            "ZEESQL.QUERY DB COMMAND 'select * from t where a = 1' JSON NO_HEADER",
            "$26 {\"rows\":[{\"a\":1,\"b\":\"x\"}]}",
        ),
        (
            "ZEESQL.EXEC DB COMMAND 'delete from t where a = 1' JSON",
            "$35 {\"result\":\"done\",\"modified_rows\":1}",
        ),
        ("ZEESQL.CREATE_DB other", "*1 *1 $2 OK"),
        ("ZEESQL.COPY FROM DB TO other NOW", "*1 *1 $2 OK"),
        ("ZEESQL.QUERY other NO_HEADER COMMAND 'select a from t'", "*2 *1 $6 RESULT *1 :2"),
        ("ZEESQL.LICENSE SET x", "*1 *1 $2 OK"),
    ]);
}
