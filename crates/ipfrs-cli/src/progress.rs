//! Progress bars on standard error. They show the amount done, the total, the rate and the remaining time.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressFinish, ProgressStyle};

/// Interval of the spinner's animation.
const TURN: Duration = Duration::from_millis(120);

/// Conditions for drawing a progress bar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// Value of `--progress`, if given.
    pub(crate) wanted: Option<bool>,
    /// Whether progress is off by default, as with `--json` and `--quiet`.
    pub(crate) is_silent: bool,
}

impl Watched {
    /// Whether to draw the bar. `--progress` overrides the default. Nothing is drawn unless standard error is a
    /// terminal.
    fn is_watched(self) -> bool {
        self.wanted.unwrap_or(!self.is_silent) && io::stderr().is_terminal()
    }
}

/// Unit of a progress bar.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Bytes,
    Time(&'static str),
    Items(&'static str),
    Nothing(&'static str),
}

/// A progress bar, or a spinner while the total is unknown. It is cleared at the end, and hidden if it is not wanted.
/// Clones share the same bar.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: Unit,
}

impl Progress {
    /// Creates a bar that counts bytes: `1.5 MiB of 3 MiB ███░░░ 200 MiB/s, 3s left`.
    pub(crate) fn bytes(watched: Watched) -> Self {
        Self::new(watched, Unit::Bytes)
    }

    /// Creates a bar that counts items, with the plural `unit`: `120 of 300 blocks ███░░░ 5.0k/s, 3s left`.
    pub(crate) fn items(watched: Watched, unit: &'static str) -> Self {
        Self::new(watched, Unit::Items(unit))
    }

    /// Creates a bar for elapsed time that also counts items, with the plural `unit`: `120 requests, 60/s ███░░░ 8s
    /// left`.
    pub(crate) fn timed(watched: Watched, whole: Duration, unit: &'static str) -> Self {
        let progress = Self::new(watched, Unit::Time(unit));
        progress.expect(milliseconds(whole));
        progress
    }

    /// Creates a spinner that only shows that `what` is running.
    pub(crate) fn spinner(watched: Watched, what: &'static str) -> Self {
        Self::new(watched, Unit::Nothing(what))
    }

    fn new(watched: Watched, unit: Unit) -> Self {
        if !watched.is_watched() {
            return Self { bar: ProgressBar::hidden(), unit };
        }
        let bar = ProgressBar::no_length().with_style(style(unit, false)).with_finish(ProgressFinish::AndClear);
        bar.enable_steady_tick(TURN);
        Self { bar, unit }
    }

    /// Whether the bar is drawn. If not, callers need not compute totals for it.
    pub(crate) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Adds `more` to the total. The first call turns the spinner into a bar.
    pub(crate) fn expect(&self, more: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(style(self.unit, true));
            self.bar.set_length(0);
        }
        self.bar.inc_length(more);
    }

    /// Adds `more` to the amount done.
    pub(crate) fn done(&self, more: u64) {
        self.bar.inc(more);
    }

    /// Sets the amount done to `total`.
    pub(crate) fn reached(&self, total: u64) {
        self.bar.set_position(total);
    }

    /// Sets the elapsed time and the amount done. `passed` is zero during the warm-up.
    pub(crate) fn passed(&self, passed: Duration, total: u64) {
        let Unit::Time(unit) = self.unit else { return self.reached(total) };
        self.bar.set_position(milliseconds(passed));
        self.bar.set_message(match passed {
            Duration::ZERO => "warming up".to_owned(),
            _ => format!("{} {unit}, {:.0}/s", HumanCount(total), total as f64 / passed.as_secs_f64()),
        });
    }

    /// Removes the bar, so that the next output has the line to itself.
    pub(crate) fn over(&self) {
        self.bar.finish_and_clear();
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn style(unit: Unit, has_total: bool) -> ProgressStyle {
    let template = match (unit, has_total) {
        (Unit::Bytes, true) => "{bytes} of {total_bytes} {wide_bar} {bytes_per_sec}, {eta} left".to_owned(),
        (Unit::Bytes, false) => "{spinner} {bytes}, {bytes_per_sec}".to_owned(),
        (Unit::Time(_), _) => "{msg} {wide_bar} {eta} left".to_owned(),
        (Unit::Items(unit), true) => {
            format!("{{human_pos}} of {{human_len}} {unit} {{wide_bar}} {{per_sec}}, {{eta}} left")
        }
        (Unit::Items(unit), false) => format!("{{spinner}} {{human_pos}} {unit}, {{per_sec}}"),
        (Unit::Nothing(what), _) => format!("{{spinner}} {what}, {{elapsed}}"),
    };
    // The templates are constant and valid. A fallback is still better than a failure because of a progress bar.
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
