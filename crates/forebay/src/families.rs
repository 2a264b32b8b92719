//! Every family of commands that this binary has: one list for the server, the hints of the
//! interactive client and docs/commands.md.

use commands::command::Family;

/// All of them, those of the server's own crate late: a row there replaces one of the same name.
pub fn families() -> Vec<Family> {
    let services = [
        crate::saga_commands::FAMILY,
        crate::quota_commands::FAMILY,
        crate::table_commands::FAMILY,
    ];
    [commands::FAMILIES, script::FAMILIES, sql::FAMILIES, &server::families(), &services].concat()
}
