//! What is said once for each process, however often a model is opened.

use std::collections::BTreeSet;

use parking_lot::Mutex;

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether a text has not been said before.
pub(super) fn first_time(text: &str) -> bool {
    SAID.lock().insert(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_said_once() {
        assert!(first_time("a text of this test"));
        assert!(!first_time("a text of this test"));
        assert!(first_time("another text of this test"));
    }
}
