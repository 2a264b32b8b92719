//! A value whose type another crate brings, such as a SQL database: the keyspace holds it, names
//! it, counts its memory and frees it, and knows nothing else of it.
//!
//! **Invariant:** a share ([`Foreign::clone`]) is the same value, not a copy: what changes inside
//! it is seen through all of them. [`ForeignValue::duplicate`] makes a copy.

use std::any::Any;
use std::sync::{Arc, Mutex};

/// What the keyspace asks of such a value. Called with the key's shard locked: none of it may wait
/// for anything that needs a shard.
pub trait ForeignValue: Any + Send + Sync {
    /// The name that TYPE answers; nine characters, which are also the module type of RDB files.
    fn type_name(&self) -> &'static str;

    /// The name that OBJECT ENCODING answers.
    fn encoding(&self) -> &'static str {
        self.type_name()
    }

    /// Bytes that it takes.
    fn memory(&self) -> usize;

    /// Steps that freeing it takes, as far as they matter.
    fn free_effort(&self) -> usize;

    /// All of it as bytes, consistent: what RDB files, DUMP and replicas get.
    ///
    /// # Errors
    /// In words, if it cannot be read.
    fn image(&self) -> Result<Vec<u8>, String>;

    /// A copy that stands alone (COPY).
    ///
    /// # Errors
    /// In words, if it cannot be copied.
    fn duplicate(&self) -> Result<Foreign, String>;
}

/// A share of such a value; see the module. One thin pointer.
#[derive(Clone)]
#[repr(transparent)]
pub struct Foreign(Arc<Box<dyn ForeignValue>>);

impl Foreign {
    /// Takes a value in.
    pub fn new(value: impl ForeignValue) -> Foreign {
        Foreign(Arc::new(Box::new(value)))
    }

    /// The value as the type that it was made of, if it is one.
    pub fn downcast<T: ForeignValue>(&self) -> Option<&T> {
        let any: &dyn Any = &**self.0;
        any.downcast_ref()
    }

    /// Whether both are the same value.
    pub fn is_same(&self, other: &Foreign) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many hold it.
    pub fn shares(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl std::ops::Deref for Foreign {
    type Target = dyn ForeignValue;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

/// Makes a value of the image that [`ForeignValue::image`] gave.
pub type ForeignLoader = fn(&[u8]) -> Result<Foreign, String>;

static LOADERS: Mutex<Vec<(&'static str, ForeignLoader)>> = Mutex::new(Vec::new());

/// Makes a type known to who reads files; the binary brings types and readers together.
pub fn register(type_name: &'static str, loader: ForeignLoader) {
    let mut loaders = LOADERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loaders.retain(|(known, _)| *known != type_name);
    loaders.push((type_name, loader));
}

/// How values of a type are made of their images, if it is known.
pub fn loader(type_name: &str) -> Option<ForeignLoader> {
    let loaders = LOADERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loaders.iter().find(|(known, _)| *known == type_name).map(|(_, loader)| *loader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Expire, Keys};
    use crate::keyspace::Keyspace;
    use crate::random::Random;
    use crate::raw::entry::NewValue;
    use crate::raw::shards::ShardSet;
    use crate::value::{Kind, Value, ValueRef};

    struct Box7(Arc<()>);

    impl ForeignValue for Box7 {
        fn type_name(&self) -> &'static str {
            "boxseven0"
        }
        fn memory(&self) -> usize {
            7
        }
        fn free_effort(&self) -> usize {
            1
        }
        fn image(&self) -> Result<Vec<u8>, String> {
            Ok(vec![7])
        }
        fn duplicate(&self) -> Result<Foreign, String> {
            Ok(Foreign::new(Box7(Arc::clone(&self.0))))
        }
    }

    #[test]
    fn a_key_holds_it_and_lets_it_go() {
        let counted = Arc::new(());
        let space = Keyspace::new(1, 1);
        let held = space.lock(&ShardSet::ALL);
        let mut keys = Keys::new(&space, held, space.tally(0), 0, Random::new(1));
        let value = Value::Foreign(Foreign::new(Box7(Arc::clone(&counted))));
        keys.set(b"k", NewValue::Value(value), Expire::At(10));
        assert_eq!(keys.kind(b"k"), Some(Kind::Foreign("boxseven0")));
        keys.set_expire_at(b"k", None);
        let Some(ValueRef::Foreign(found)) = keys.get(b"k") else { panic!("it is there") };
        assert_eq!((found.memory(), found.image()), (7, Ok(vec![7])));
        assert!(found.downcast::<Box7>().is_some());
        let (value, _) = keys.take(b"k").expect("it is there");
        assert_eq!(Arc::strong_count(&counted), 2);
        keys.put(b"m", value, None);
        assert!(keys.remove(b"m"));
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
