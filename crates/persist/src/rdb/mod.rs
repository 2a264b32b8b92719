//! The RDB format: writing and reading whole files and single values (DUMP, RESTORE).
