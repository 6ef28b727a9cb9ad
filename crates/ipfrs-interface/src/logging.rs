//! The `[log]` section, and the logger of the process.

use std::io::{self, IsTerminal};

use ipfrs_core::{Error, Result};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// `[log]`: log output on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `"text"` or `"json"`.
    pub format: LogFormat,
    /// A level (`"info"`), or directives per module as in `RUST_LOG` (`"info,ipfrs_interface=debug"`).
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

impl LogConfig {
    /// Checks that the level can be parsed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and what is
    /// accepted.
    pub fn validate(&self) -> Result<()> {
        EnvFilter::try_new(&self.level).map(drop).map_err(|e| {
            Error::invalid(format!(
                "log.level = {:?}: {e}; accepted values are error, warn, info, debug, trace, off, or directives such as \
                 \"info,ipfrs_interface=debug\"",
                self.level
            ))
        })
    }

    /// Starts logging to standard error. The environment variable `RUST_LOG` overrides the level.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `RUST_LOG` or the level cannot be parsed;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if the process already has a logger.
    pub fn start(&self) -> Result<()> {
        let filter = match std::env::var("RUST_LOG") {
            Ok(directives) if !directives.is_empty() => EnvFilter::try_new(&directives)
                .map_err(|e| Error::invalid(format!("the environment variable RUST_LOG = {directives:?}: {e}")))?,
            _ => {
                self.validate()?;
                EnvFilter::new(&self.level)
            }
        };
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal());
        let started = match self.format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        started.map_err(|e| Error::new(ipfrs_core::ErrorKind::Conflict, format!("the log could not be started: {e}")))
    }
}
