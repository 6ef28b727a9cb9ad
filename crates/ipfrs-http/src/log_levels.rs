//! Levels of the process's log, which its owner offers to the RPC.

use std::fmt::Debug;

use ipfrs_core::Result;

/// The log of the process. Levels are `error`, `warn`, `info`, `debug`, `trace` and `off`.
pub trait LogLevels: Debug + Send + Sync {
    /// Returns the level of all modules without one of their own.
    fn default_level(&self) -> String;

    /// Returns the level of a module.
    fn level(&self, module: &str) -> String;

    /// Sets the level of a module, or of all modules, until the process ends.
    ///
    /// # Errors
    /// If the log cannot be changed.
    fn set(&self, module: Option<&str>, level: &str) -> Result<()>;
}
