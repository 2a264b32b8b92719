//! SQLite databases as values of the keyspace: the REDISQL, ZEESQL and SQL families.

pub mod budget;
pub mod connection;
pub mod error;
pub mod frozen;
pub mod guard;
pub mod lexer;
pub mod raw;
pub mod reply;
pub mod run;
