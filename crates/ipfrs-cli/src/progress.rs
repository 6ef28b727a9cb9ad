//! Progress bars on standard error.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Bytes done, of how many, at what rate, and the time left. Hidden where nobody watches.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shown when `wanted` says so, or by default when standard error is a terminal.
    pub(crate) fn new(wanted: Option<bool>) -> Self {
        if !wanted.unwrap_or_else(|| io::stderr().is_terminal()) {
            return Self { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template("{bytes} done, {bytes_per_sec} {spinner}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::no_length().with_style(style).with_finish(ProgressFinish::AndClear) }
    }

    pub(crate) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// The work has grown by `bytes` that are still to do.
    pub(crate) fn expect(&self, bytes: u64) {
        if self.bar.length().is_none() {
            let style = ProgressStyle::with_template("{bytes} of {total_bytes} {wide_bar} {bytes_per_sec}, {eta} left");
            if let Ok(style) = style {
                self.bar.set_style(style);
            }
            self.bar.set_length(0);
        }
        self.bar.inc_length(bytes);
    }

    /// `bytes` more are done.
    pub(crate) fn done(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Prints without the bar in the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}
