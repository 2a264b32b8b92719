//! The libraries of functions, for all threads.
//!
//! **Invariant:** they change only under all locks of the keyspace (the commands that do it have
//! the flag ALL_KEYS), so the commit log has them in the right place among the writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use commands::registry::Registry;

use crate::scripts::Scripts;
use crate::shebang::Flags;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// What FCALL calls it.
    pub name: Vec<u8>,
    /// What it is for.
    pub description: Option<Vec<u8>>,
    /// What it does.
    pub flags: Flags,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// Its source, first line included.
    pub code: Vec<u8>,
    /// Its functions, by name.
    pub functions: Vec<Function>,
}

/// Functions are found whatever the case of their names.
fn lower(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// A set of libraries whose names and functions do not clash.
#[derive(Debug, Default, Clone)]
pub struct Set {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    functions: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Set {
    /// Adds a library, in place of one of its name if `replace`; `Err` says what clashes.
    pub fn add(&mut self, library: Arc<Library>, replace: bool) -> Result<(), String> {
        let lossy = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let old = self.by_name.get(&library.name).cloned();
        if old.is_some() && !replace {
            return Err(format!("Library '{}' already exists", lossy(&library.name)));
        }
        for function in &library.functions {
            let owner = self.functions.get(&lower(&function.name)).map(|(owner, _)| owner);
            if owner.is_some_and(|owner| !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, owner))) {
                return Err(format!("Function {} already exists", lossy(&function.name)));
            }
        }
        self.remove(&library.name);
        for (number, function) in library.functions.iter().enumerate() {
            self.functions.insert(lower(&function.name), (Arc::clone(&library), number));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library; false if there is none of this name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.functions.remove(&lower(&function.name));
        }
        true
    }

    /// All libraries, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// Number of libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of functions.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Libraries {
    set: RwLock<Set>,
    /// How often they have changed.
    pub generation: AtomicU64,
}

impl Libraries {
    /// The libraries as they are now.
    pub fn snapshot(&self) -> Set {
        self.set.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Looks at the libraries.
    pub fn look<T>(&self, look: impl FnOnce(&Set) -> T) -> T {
        look(&self.set.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Changes the libraries; threads notice before they next call a function.
    pub fn change<T>(&self, change: impl FnOnce(&mut Set) -> T) -> T {
        let mut set = self.set.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = change(&mut set);
        self.generation.fetch_add(1, Ordering::Release);
        result
    }

    /// A function: its library and its number there.
    pub fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        self.look(|set| match set.functions.get(name) {
            Some(found) => Some(found.clone()),
            None => set.functions.get(&lower(name)).cloned(),
        })
    }

    /// Whether this very library is there.
    pub fn has(&self, library: &Arc<Library>) -> bool {
        self.look(|set| {
            set.by_name.get(&library.name).is_some_and(|known| Arc::ptr_eq(known, library))
        })
    }
}

/// The sources of all libraries, for files.
pub fn sources(registry: &Registry) -> Vec<Vec<u8>> {
    let set = registry.state::<Scripts>().libraries.snapshot();
    set.iter().map(|library| library.code.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Arc<Library> {
        let function = |name: &&str| Function {
            name: name.as_bytes().to_vec(),
            description: None,
            flags: Flags::default(),
        };
        let functions = functions.iter().map(function).collect();
        Arc::new(Library { name: name.as_bytes().to_vec(), code: Vec::new(), functions })
    }

    #[test]
    fn names_do_not_clash() {
        let mut set = Set::default();
        assert_eq!(set.add(library("a", &["f", "g"]), false), Ok(()));
        let exists = Err("Library 'a' already exists".to_string());
        assert_eq!(set.add(library("a", &["h"]), false), exists);
        let clashes = Err("Function g already exists".to_string());
        assert_eq!(set.add(library("b", &["g"]), true), clashes);
        assert_eq!(set.add(library("a", &["f"]), true), Ok(()));
        assert_eq!((set.len(), set.function_count()), (1, 1));
        assert_eq!(set.add(library("b", &["g"]), false), Ok(()));
        assert!(set.remove(b"a") && !set.remove(b"a"));
        assert_eq!((set.len(), set.function_count()), (1, 1));
    }
}
