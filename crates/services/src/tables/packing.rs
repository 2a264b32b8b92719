//! Bodies in fewer bytes: made when somebody who takes them first asks for a kept answer, by a
//! thread that has nothing else to do, for those who come later. Of each coding once an answer.
//!
//! **Invariant:** nobody waits for it, and what nobody asks for is not made.

use std::sync::Arc;

use super::ask::Ask;
use super::page::{Coding, Page};
use super::pool::Health;
use super::service::Tables;

/// Bodies below this are not compressed, in bytes.
const PACKED_BYTES_MIN: usize = 512;

impl Tables {
    /// Somebody would rather have had this kept answer in a coding that it is not there in.
    pub fn pack(&self, ask: &Arc<Ask>, page: &Arc<Page>, coding: Coding) {
        if page.plain().len() < PACKED_BYTES_MIN || !page.is_first_to_ask(coding) {
            return;
        }
        let Some(this) = self.this.upgrade() else { return };
        let (asked, kept) = (Arc::clone(ask), Arc::clone(page));
        let is_taken = self.readers.push_spare(Box::new(move |_| {
            this.pack_now(&asked, &kept, coding);
            Health::Good
        }));
        if !is_taken {
            page.unask(coding);
        }
    }

    fn pack_now(&self, ask: &Ask, page: &Page, coding: Coding) {
        let body = (self.parts.compress)(coding, page.plain()).into();
        // Whoever removed or replaced it meanwhile has the last word.
        if self.parts.shelf.begins(&ask.key, &page.start(), self.now_ms()) == Ok(true) {
            self.put(ask, &Arc::new(page.with(coding, body)));
        } else {
            page.unask(coding);
        }
    }
}
