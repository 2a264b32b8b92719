//! Whoever keeps something in step with keys, such as an index of hashes in a SQL table: told under
//! the locks of a command or transaction which keys it changed, once, at its end.
//!
//! **Invariant:** what is undone is not told; what is told is final: the next change of a key is
//! told after this one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::keys::Keys;
use crate::keyspace::Keyspace;

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// A key of a database: made, changed or gone.
    Key(usize, Vec<u8>),
    /// All of a database, with all locks held.
    All(usize),
}

/// See the module.
pub trait Observer: Any + Send + Sync {
    /// Whether the changes of a key are wanted.
    fn wants(&self, db: usize, key: &[u8]) -> bool;

    /// What a command or transaction changed. The shards of those keys are held; it may select
    /// another database, and must wait for nothing that needs keys.
    fn changed(&self, keys: &mut Keys<'_>, touched: &[Touched]);

    /// For the owner to find it again.
    fn as_any(&self) -> &dyn Any;
}

impl Keyspace {
    /// The observer; made, and asked from now on, if there is none.
    pub fn observer(&self, new: impl FnOnce() -> Arc<dyn Observer>) -> &dyn Observer {
        let observer = self.observer.get_or_init(new);
        self.is_observed.store(true, Ordering::Release);
        &**observer
    }
}

impl Keys<'_> {
    /// Notes a key for the observer, if it wants it.
    #[cold]
    pub(crate) fn note_touched(&mut self, key: &[u8]) {
        let wants = |observer: &Arc<dyn Observer>| observer.wants(self.db, key);
        if self.space.observer.get().is_some_and(wants) {
            self.effects.touched.push(Touched::Key(self.db, key.to_vec()));
        }
    }

    /// Notes all of a database for the observer.
    pub(crate) fn note_all_touched(&mut self, db: usize) {
        if self.space.is_observed.load(Ordering::Relaxed) {
            self.effects.touched.push(Touched::All(db));
        }
    }

    /// Tells the observer what was changed; to be called once nothing of it can be undone.
    #[cold]
    pub fn tell_observer(&mut self) {
        let touched = std::mem::take(&mut self.effects.touched);
        let (space, db) = (self.space, self.db);
        if let Some(observer) = space.observer.get() {
            observer.changed(self, &touched);
        }
        self.db = db;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::keys::Expire;
    use crate::random::Random;
    use crate::raw::entry::NewValue;
    use crate::raw::shards::ShardSet;

    #[derive(Default)]
    struct Seen(Mutex<Vec<Touched>>);

    impl Observer for Seen {
        fn wants(&self, _: usize, key: &[u8]) -> bool {
            key.starts_with(b"a")
        }
        fn changed(&self, _: &mut Keys<'_>, touched: &[Touched]) {
            self.0.lock().expect("no test panics here").extend_from_slice(touched);
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn what_is_undone_is_not_told() {
        let space = Keyspace::new(2, 1);
        let held = space.lock(&ShardSet::ALL);
        let mut keys = Keys::new(&space, held, space.tally(0), 0, Random::new(1));
        let set = |keys: &mut Keys<'_>, key: &[u8]| {
            keys.set(key, NewValue::Bytes(b"v"), Expire::Never);
        };
        set(&mut keys, b"a0");
        let observer = space.observer(|| Arc::new(Seen::default()));
        set(&mut keys, b"a1");
        set(&mut keys, b"b1");
        keys.record();
        set(&mut keys, b"a2");
        keys.undo();
        keys.tell_observer();
        let seen = observer.as_any().downcast_ref::<Seen>().expect("it was made so");
        let told = std::mem::take(&mut *seen.0.lock().expect("no test panics here"));
        assert_eq!(told, [Touched::Key(0, b"a1".to_vec())]);
        keys.remove(b"a1");
        keys.flush(1, crate::effects::Freeing::Here);
        keys.tell_observer();
        let told = std::mem::take(&mut *seen.0.lock().expect("no test panics here"));
        assert_eq!(told, [Touched::Key(0, b"a1".to_vec()), Touched::All(1)]);
    }
}
