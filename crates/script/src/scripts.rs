//! The scripts that the server knows, by digest, for all threads; and those that run just now.
//!
//! Scripts that SCRIPT LOAD brought stay until SCRIPT FLUSH. Those of EVAL make room for others,
//! the one that has not run for longest first, when there are more than [`EVAL_SCRIPTS_MAX`].
//!
//! **Invariant:** a script that is not known any more has `is_known` false, so that threads that
//! have compiled it need not ask. After a flush the generation is another one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use commands::context;
use commands::registry::Registry;

use crate::libraries::{Libraries, Set};
use crate::shebang::Flags;
use commands::sha1::hex;

/// Scripts of EVAL that are kept, at most (Redis 7.4 has the same bound).
pub const EVAL_SCRIPTS_MAX: usize = 500;

/// A script's digest.
pub type Digest = [u8; 20];

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its source, first line included.
    pub body: Vec<u8>,
    /// Its digest as text.
    pub hex: String,
    /// What its first line says.
    pub flags: Flags,
    /// False once it has been flushed or made room.
    pub is_known: AtomicBool,
    /// SCRIPT LOAD brought it.
    pub is_loaded: AtomicBool,
    /// When it last ran, in milliseconds since 1970.
    pub used_ms: AtomicI64,
}

/// Numbers about all scripts and libraries of a server.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Counts {
    pub scripts: usize,
    pub evicted: u64,
    pub script_bytes: usize,
    /// Of the Lua states of scripts, and of functions.
    pub vm_bytes: [usize; 2],
    pub libraries: usize,
    pub functions: usize,
    pub library_bytes: usize,
}

/// See [`Counts`].
pub fn counts(registry: &Registry) -> Counts {
    let scripts: &Scripts = registry.state();
    let bytes = |set: &Set| set.iter().map(|library| library.code.len() + 256).sum();
    let (libraries, functions, library_bytes) =
        scripts.libraries.look(|set| (set.len(), set.function_count(), bytes(set)));
    Counts {
        scripts: scripts.count(),
        evicted: scripts.evicted.load(Ordering::Relaxed),
        script_bytes: scripts.source_bytes(),
        vm_bytes: [0, 1].map(|index| scripts.memory[index].load(Ordering::Relaxed)),
        libraries,
        functions,
        library_bytes,
    }
}

/// See the module.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<HashMap<Digest, Arc<Script>>>,
    /// How often all scripts were flushed.
    pub generation: AtomicU64,
    /// Scripts that made room for others.
    pub evicted: AtomicU64,
    running: Mutex<Vec<Arc<context::Script>>>,
    /// The libraries of functions.
    pub libraries: Libraries,
    /// Lua's memory on all threads, in bytes: of scripts, of functions.
    pub memory: [AtomicUsize; 2],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Scripts {
    /// The script with this digest.
    pub fn get(&self, digest: &Digest) -> Option<Arc<Script>> {
        locked(&self.known).get(digest).cloned()
    }

    /// Number of scripts.
    pub fn count(&self) -> usize {
        locked(&self.known).len()
    }

    /// Bytes of all sources, and what keeping them takes.
    pub fn source_bytes(&self) -> usize {
        let known = locked(&self.known);
        known.values().map(|script| script.body.len() + size_of::<Script>() + 64).sum()
    }

    /// Adds a script that compiles; the one that is there already if there is one.
    pub fn add(&self, digest: Digest, body: &[u8], flags: Flags, now_ms: i64) -> Arc<Script> {
        let mut known = locked(&self.known);
        if let Some(script) = known.get(&digest) {
            return Arc::clone(script);
        }
        let script = Arc::new(Script {
            body: body.to_vec(),
            hex: String::from_utf8_lossy(&hex(&digest)).into_owned(),
            flags,
            is_known: AtomicBool::new(true),
            is_loaded: AtomicBool::new(false),
            used_ms: AtomicI64::new(now_ms),
        });
        self.make_room(&mut known);
        known.insert(digest, Arc::clone(&script));
        script
    }

    fn make_room(&self, known: &mut HashMap<Digest, Arc<Script>>) {
        if known.len() < EVAL_SCRIPTS_MAX {
            return;
        }
        let may_go =
            |(_, script): &(&Digest, &Arc<Script>)| !script.is_loaded.load(Ordering::Relaxed);
        let count = known.iter().filter(may_go).count();
        let oldest = known
            .iter()
            .filter(may_go)
            .min_by_key(|(_, script)| script.used_ms.load(Ordering::Relaxed))
            .map(|(digest, _)| *digest);
        if let Some(digest) = oldest.filter(|_| count >= EVAL_SCRIPTS_MAX)
            && let Some(script) = known.remove(&digest)
        {
            script.is_known.store(false, Ordering::Relaxed);
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        let mut known = locked(&self.known);
        for (_, script) in known.drain() {
            script.is_known.store(false, Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    // Scripts that run for long.

    /// A script has been running for a while: it can be ended from now on.
    pub fn started(&self, script: &Arc<context::Script>) {
        locked(&self.running).push(Arc::clone(script));
    }

    /// A script that had been running for a while has ended.
    pub fn stopped(&self, script: &Arc<context::Script>) {
        locked(&self.running).retain(|other| !Arc::ptr_eq(other, script));
    }

    /// The scripts that have been running for a while.
    pub fn running(&self) -> Vec<Arc<context::Script>> {
        locked(&self.running).clone()
    }
}
