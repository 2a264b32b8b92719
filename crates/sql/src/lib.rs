//! SQLite databases as values.
