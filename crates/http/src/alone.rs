//! Whether a thread of the door has one request only: then it may do itself what it would hand over
//! if others waited.

use std::cell::Cell;

thread_local! {
    /// Requests that this thread has begun with.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// A request begins.
pub(crate) fn begin() {
    BEGUN.set(BEGUN.get().wrapping_add(1));
}

/// Lets everything run that is ready, what has come in over sockets included; whether no other
/// request has begun by that.
pub(crate) async fn is_alone() -> bool {
    let begun = BEGUN.get();
    // Tokio looks at the sockets before it comes back here.
    tokio::task::yield_now().await;
    BEGUN.get() == begun
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_meanwhile_is_noticed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            begin();
            assert!(is_alone().await);
            let (one, ()) = tokio::join!(is_alone(), async { begin() });
            assert!(!one);
            assert!(is_alone().await);
        });
    }
}
