//! The database that an address names, whichever product it is.

use std::path::Path;
use std::sync::Arc;

use services::database::Connect;

use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;

/// Where the connections of an address come from: `sqlite:FILE` (below `folder`),
/// `mysql://user:password@host/database` (also `mariadb://`; `?socket=PATH`), or
/// `postgres://user:password@host/database` (also `postgresql://`; `?host=FOLDER`).
pub fn open(address: &str, folder: &Path) -> Result<Arc<dyn Connect>, String> {
    let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
    // Addresses have passwords in them: errors do not repeat them.
    let wrong = |why: String| format!("the {scheme} address makes no sense: {why}");
    Ok(match scheme {
        "sqlite" if !rest.is_empty() => Arc::new(Sqlite::new(folder.join(rest))),
        "mysql" | "mariadb" => Arc::new(Mysql::new(address).map_err(wrong)?),
        "postgres" | "postgresql" => Arc::new(Postgres::new(address).map_err(wrong)?),
        _ => {
            let forms = "sqlite:FILE, mysql://user@host/database, postgres://user@host/database";
            return Err(format!("a database is {forms}"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_products() {
        let dialect = |address: &str| {
            let opened = open(address, Path::new("/tmp"));
            opened.map(|connect| format!("{:?}", connect.dialect()))
        };
        assert_eq!(dialect("sqlite:a.db"), Ok("Sqlite".into()));
        assert_eq!(dialect("mariadb://root@localhost/a?socket=%2Ftmp%2Fs"), Ok("Mysql".into()));
        assert_eq!(dialect("postgresql://root@localhost/a?host=/tmp"), Ok("Postgres".into()));
        for wrong in ["sqlite:", "mysql://root:secret@host", "postgres://u:secret@h:x/d", "oracle:"]
        {
            let error = dialect(wrong).expect_err("it is wrong");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
