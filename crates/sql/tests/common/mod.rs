//! A client of a keyspace with SQL, no server around.
#![allow(dead_code)] // Each file of tests uses a part of it.

use commands::registry::Registry;
use commands::testing::Client;

/// A client that knows the SQL families.
pub fn client() -> Client {
    let mut client = Client::new();
    client.core.registry = Registry::new(&[commands::FAMILIES, sql::FAMILIES].concat());
    client
}

/// A client with a database `DB` that has a table `t(a INTEGER, b TEXT)` of two rows.
pub fn with_table() -> Client {
    let mut client = client();
    client.check(&[
        ("REDISQL.CREATE_DB DB", "+OK"),
        ("REDISQL.EXEC DB 'CREATE TABLE t(a INTEGER, b TEXT)'", "*2 +DONE :0"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(1,'x'),(2,'y')\"", "*2 +DONE :2"),
    ]);
    client
}
