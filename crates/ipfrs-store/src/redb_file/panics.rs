//! Panics of redb, which become errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Whether this thread is calling redb.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread becomes an error about a damaged file, so that a panic hook need not report it.
#[must_use]
pub fn is_panic_an_error() -> bool {
    IS_GUARDED.get()
}

/// Runs `run` and catches panics of redb, as their messages.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let is_nested = IS_GUARDED.replace(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    IS_GUARDED.set(is_nested);
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("a panic without a message").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::{caught, is_panic_an_error};

    #[test]
    fn caught_panics_are_their_messages() {
        let message = |run: fn()| caught(run).unwrap_err();
        assert_eq!(message(|| panic!("no page")), "no page");
        assert_eq!(message(|| panic_any("page 7".to_owned())), "page 7");
        assert_eq!(message(|| panic_any(7)), "a panic without a message");
        assert_eq!(caught(is_panic_an_error), Ok(true));
        assert!(!is_panic_an_error());
    }
}
