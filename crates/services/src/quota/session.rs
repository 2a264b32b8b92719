//! Sessions: a name that stands for a key until it has been idle for long enough. They live in the
//! store, where they can be seen; what they have accepted is told when they end.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::Refusal;
use super::caller::Caller;
use super::service::{Service, busy, lock};
use super::writer::refuse_overdue;

/// A session of this server.
#[derive(Debug)]
pub struct Session {
    caller: Arc<Caller>,
    idle_at_ms: i64,
    accepted: i64,
}

/// All of them, by name.
pub type Sessions = HashMap<String, Session>;

/// Sessions at most.
const SESSIONS_MAX: usize = 100_000;

fn key_of(id: &str) -> String {
    format!("quota:session:{id}")
}

impl Service {
    /// Opens a session; its name.
    pub fn open_session(&self, caller: &Arc<Caller>, now_ms: i64) -> Result<String, Refusal> {
        let id = self.fresh_secret();
        let idle_at_ms = now_ms + self.settings.session_idle_ms;
        let text = format!("{} {}", caller.org.id, caller.key.key_id);
        let stored = self.store.set_text(&key_of(&id), &text, idle_at_ms, now_ms);
        stored.map_err(|error| busy(error.to_string()))?;
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            return Err(busy("there are too many sessions".into()));
        }
        let caller = Arc::clone(caller);
        sessions.insert(id.clone(), Session { caller, idle_at_ms, accepted: 0 });
        Ok(id)
    }

    /// Seconds after which an idle session ends.
    pub fn session_idle_s(&self) -> i64 {
        self.settings.session_idle_ms / 1000
    }

    /// Whose session this is; it stays open for another idle time.
    pub fn session(&self, id: &str, now_ms: i64) -> Result<Arc<Caller>, Refusal> {
        let gone = Refusal::Unauthorized("this session has ended, or never was");
        let idle_at_ms = now_ms + self.settings.session_idle_ms;
        let mut sessions = lock(&self.sessions);
        let Some(session) = sessions.get_mut(id) else { return Err(gone) };
        if session.idle_at_ms <= now_ms {
            return Err(gone);
        }
        let touched = self.store.touch_text(&key_of(id), idle_at_ms, now_ms);
        if touched.map_err(|error| busy(error.to_string()))?.is_none() {
            // Somebody deleted its key: that ends it.
            sessions.remove(id);
            return Err(gone);
        }
        session.idle_at_ms = idle_at_ms;
        Ok(Arc::clone(&session.caller))
    }

    /// Counts what a session has accepted.
    pub fn session_accepted(&self, id: &str, count: i64) {
        if let Some(session) = lock(&self.sessions).get_mut(id) {
            session.accepted += count;
        }
    }

    /// Ends a session: whose it was, and what it has accepted.
    pub fn close_session(&self, id: &str, now_ms: i64) -> Option<(Arc<Caller>, i64)> {
        let session = lock(&self.sessions).remove(id)?;
        if let Err(error) = self.store.remove(&key_of(id), now_ms) {
            tracing::warn!("quota: {error}");
        }
        self.note(&session.caller.org.id, "session", &session.caller.key.key_id, session.accepted);
        Some((session.caller, session.accepted))
    }

    /// Ends the sessions that have been idle for too long, refuses requests that have waited for
    /// too long, writes down who was refused and who has passed a threshold, and deletes old rows.
    /// To be called now and then.
    pub fn tidy(self: &Arc<Self>, now_ms: i64) {
        self.tell_passed();
        let idle: Vec<String> = lock(&self.sessions)
            .iter()
            .filter(|(_, session)| session.idle_at_ms <= now_ms)
            .map(|(id, _)| id.clone())
            .collect();
        for id in idle {
            self.close_session(&id, now_ms);
        }
        for org in self.known_orgs() {
            let denied = org.take_denied();
            if denied > 0 {
                self.note(&org.id, "denials", "", denied as i64);
            }
        }
        // A writer that waits for the database's answer cannot do it.
        refuse_overdue(&self.queue, &*self.store, now_ms);
        self.expire(now_ms);
    }
}
