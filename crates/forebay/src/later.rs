//! Commands whose reply comes from a service's thread: the client is blocked as BLPOP blocks it,
//! and the answer reaches it through its own loop.
//!
//! **Invariant:** a client gets one reply: the answer, or what its command says at the timeout.

use std::sync::{Arc, Mutex};

use commands::context::{Block, Blocked, Context, Deliver, Wake};
use keyspace::value::Kind as ValueKind;
use keyspace::waiting::Waiter;
use resp::Writer;

/// What waits for a service: the answer if it came at once, or who gets it.
struct Pending<A> {
    answer: Option<A>,
    waiting: Option<(Arc<Waiter>, Deliver)>,
}

/// Asks a service; `write` makes the reply from its answer, now or when it comes.
pub fn ask<A: Send + 'static>(
    cx: &mut Context<'_>,
    timeout_ms: i64,
    write: impl Fn(&mut Writer, &A) + Send + Copy + 'static,
    ask: impl FnOnce(Box<dyn FnOnce(A) + Send>),
) {
    let pending = Arc::new(Mutex::new(Pending { answer: None, waiting: None }));
    let (shared, resp3) = (Arc::clone(&pending), cx.session.resp3);
    ask(Box::new(move |answer| {
        let mut pending = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((waiter, deliver)) = pending.waiting.take() else {
            pending.answer = Some(answer);
            return;
        };
        if waiter.try_begin() {
            let mut out = Writer::new(resp3);
            write(&mut out, &answer);
            waiter.end();
            deliver(out);
        }
    }));
    let mut pending = pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(answer) = pending.answer.take() {
        return write(cx.out, &answer);
    }
    if cx.session.in_exec {
        return cx.out.null();
    }
    let waiter = Waiter::new(cx.session.id, Box::new(()));
    pending.waiting = Some((Arc::clone(&waiter), cx.host.deliverer(cx.session)));
    let block = Block {
        keys: Vec::new(),
        wake: Wake::Grown(ValueKind::String),
        words: None,
        deadline_ms: (timeout_ms > 0).then(|| cx.keys.now_ms() + timeout_ms),
        on_timeout: |out| out.null(),
    };
    cx.session.blocked = Some(Blocked { waiter, block, db: cx.session.db, report: None });
}
