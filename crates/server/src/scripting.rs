//! What the server asks the crate of scripts, which it does not know: how many there are, and the
//! libraries of functions for files.

use std::sync::{Arc, OnceLock, Weak};

use commands::registry::Registry;
use persist::rdb::Libraries;

use crate::shared::Shared;

/// Numbers for INFO.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Scripts that EVALSHA finds.
    pub scripts: u64,
    /// Those that made room for others.
    pub evicted: u64,
    /// Bytes of their sources.
    pub script_bytes: u64,
    /// Bytes of the Lua states that run them.
    pub script_vm_bytes: u64,
    /// Libraries.
    pub libraries: u64,
    /// Functions.
    pub functions: u64,
    /// Bytes of the libraries' sources.
    pub library_bytes: u64,
    /// Bytes of the Lua states that run functions.
    pub function_vm_bytes: u64,
}

/// The crate of scripts, as the binary hands it over.
pub struct Hooks {
    /// See [`Counts`].
    pub counts: fn(&Registry) -> Counts,
    /// The sources of all libraries.
    pub sources: fn(&Registry) -> Vec<Vec<u8>>,
    /// Adds a library, in the place of one of the same name.
    pub load: fn(&Registry, &[u8]) -> Result<(), String>,
}

/// Set by the binary before it starts a server; it holds functions only, no state of any server.
pub static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// The numbers of this server.
pub fn counts(shared: &Shared) -> Counts {
    HOOKS.get().map_or_else(Counts::default, |hooks| (hooks.counts)(&shared.core.registry))
}

/// Lets files have the libraries, if there are scripts at all.
pub fn attach(shared: &Arc<Shared>) {
    if let Some(hooks) = HOOKS.get() {
        let keeper = Keeper { shared: Arc::downgrade(shared), hooks };
        // Set here only, once for each server.
        let _ = shared.persistence.set_libraries(Box::new(keeper));
    }
}

struct Keeper {
    shared: Weak<Shared>,
    hooks: &'static Hooks,
}

impl Libraries for Keeper {
    fn sources(&self) -> Vec<Vec<u8>> {
        let shared = self.shared.upgrade();
        shared.map_or_else(Vec::new, |shared| (self.hooks.sources)(&shared.core.registry))
    }

    fn load(&self, source: &[u8]) -> Result<(), String> {
        let shared = self.shared.upgrade().ok_or("the server has ended")?;
        (self.hooks.load)(&shared.core.registry, source)
    }
}
