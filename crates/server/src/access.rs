//! Who a client is: the one place that knows passwords. Full ACL takes this file's place, and that
//! of the check in [`crate::hub::Hub::admit`](commands::context::Host::admit).

use commands::error::Error;

use crate::options::index_of;
use crate::shared::Shared;

/// The only user.
pub const DEFAULT_USER: &str = "default";

/// What a wrong name or password is answered with.
pub const WRONG_PASSWORD: Error =
    Error::text("WRONGPASS invalid username-password pair or user is disabled.");

fn password(shared: &Shared) -> String {
    shared.options.text(const { index_of("requirepass") })
}

/// Whether clients must show who they are.
pub fn needs_password(shared: &Shared) -> bool {
    !password(shared).is_empty()
}

/// Whether this is a user and its password. Without a configured one, any will do.
pub fn is_known(shared: &Shared, user: &[u8], given: &[u8]) -> bool {
    let wanted = password(shared);
    user == DEFAULT_USER.as_bytes() && (wanted.is_empty() || same(wanted.as_bytes(), given))
}

/// Compares in a time that depends on the given password's length only.
fn same(wanted: &[u8], given: &[u8]) -> bool {
    let mut differences = wanted.len() ^ given.len();
    for (index, byte) in given.iter().enumerate() {
        // Cannot be empty: an empty one is no password.
        differences |= usize::from(wanted[index % wanted.len()] ^ byte);
    }
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for wrong in [b"secre" as &[u8], b"secrets", b"Secret", b"", b"secretsecret"] {
            assert!(!same(b"secret", wrong));
        }
    }
}
