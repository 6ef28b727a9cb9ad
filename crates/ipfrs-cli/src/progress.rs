//! The one look of progress on standard error: what is done, of how much, at what rate, and the time left.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressFinish, ProgressStyle};

/// How often a spinner turns while nothing else happens.
const TURN: Duration = Duration::from_millis(120);

/// Who watches: decides whether anything is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// What `--progress` says, where it was given.
    pub(crate) wanted: Option<bool>,
    /// Whether a program reads the output, or nobody: `--json`, `--quiet`.
    pub(crate) is_silent: bool,
}

impl Watched {
    /// As `--progress` says; else when standard error is a terminal and nothing asks for silence.
    fn is_watched(self) -> bool {
        self.wanted.unwrap_or(!self.is_silent) && io::stderr().is_terminal()
    }
}

/// What a bar counts.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Bytes,
    Time(&'static str),
    Items(&'static str),
    Nothing(&'static str),
}

/// A bar, or a spinner while nobody knows how much there is to do. Cleared at the end, and drawn nowhere when nobody
/// watches. Clones are the same bar.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: Unit,
}

impl Progress {
    /// Counts bytes: `1.5 MiB of 3 MiB ███░░░ 200 MiB/s, 3s left`.
    pub(crate) fn bytes(watched: Watched) -> Self {
        Self::new(watched, Unit::Bytes)
    }

    /// Counts things; `unit` is their plural: `120 of 300 blocks ███░░░ 5.0k/s, 3s left`.
    pub(crate) fn items(watched: Watched, unit: &'static str) -> Self {
        Self::new(watched, Unit::Items(unit))
    }

    /// Counts the time that it takes, and things beside it; `unit` is their plural: `120 requests, 60/s ███░░░ 8s left`.
    pub(crate) fn timed(watched: Watched, whole: Duration, unit: &'static str) -> Self {
        let progress = Self::new(watched, Unit::Time(unit));
        progress.expect(milliseconds(whole));
        progress
    }

    /// Says only that `what` goes on.
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

    /// Whether it is drawn: what is only counted for it need not be.
    pub(crate) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// The work has grown by `more` that are still to do. From the first time on there is a bar.
    pub(crate) fn expect(&self, more: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(style(self.unit, true));
            self.bar.set_length(0);
        }
        self.bar.inc_length(more);
    }

    /// `more` are done.
    pub(crate) fn done(&self, more: u64) {
        self.bar.inc(more);
    }

    /// `total` are done by now, for those who are told totals.
    pub(crate) fn reached(&self, total: u64) {
        self.bar.set_position(total);
    }

    /// `total` are done after `passed`; before the time begins to count it is zero.
    pub(crate) fn passed(&self, passed: Duration, total: u64) {
        let Unit::Time(unit) = self.unit else { return self.reached(total) };
        self.bar.set_position(milliseconds(passed));
        self.bar.set_message(match passed {
            Duration::ZERO => "warming up".to_owned(),
            _ => format!("{} {unit}, {:.0}/s", HumanCount(total), total as f64 / passed.as_secs_f64()),
        });
    }

    /// It is over: what is printed next has the line for itself.
    pub(crate) fn over(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints without the bar in the way.
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
    // The templates are ours and sound; a bar without one would be no reason to fail either.
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
