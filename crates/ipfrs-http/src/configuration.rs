//! The configuration of the program that contains this front-end.

use std::fmt;
use std::sync::Arc;

use ipfrs_core::{Error, Result};
use ipfrs_node::off_workers;
use ipfrs_rpc::kubo_config::Change;
use parking_lot::RwLock;
use serde_json::Value;

/// A configuration that can be read again, and changed. Both block on the disk.
pub trait Configuration: fmt::Debug + Send + Sync {
    /// Returns all settings that apply after a restart, as JSON without credentials.
    ///
    /// # Errors
    /// The configuration cannot be read, or is invalid.
    fn shown(&self) -> Result<String>;

    /// Changes all of these settings durably, or none. Returns what [`shown`](Self::shown) returns afterwards. With
    /// `is_dry`, nothing changes.
    ///
    /// # Errors
    /// A setting is unknown, its value is not accepted, it is not set here, or it cannot be stored.
    fn change(&self, changes: &[Change], is_dry: bool) -> Result<String>;
}

/// The configuration of the running program, as JSON without credentials.
#[derive(Debug)]
pub struct RunningConfiguration(RwLock<String>);

impl RunningConfiguration {
    /// Shows another configuration, after it was reloaded.
    pub fn replace(&self, json: String) {
        *self.0.write() = json;
    }

    pub(crate) fn json(&self) -> String {
        self.0.read().clone()
    }
}

/// The configuration that the front-end shows.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) running: Arc<RunningConfiguration>,
    /// Place in which it is read and changed.
    source: Option<Arc<dyn Configuration>>,
}

impl Shown {
    pub(crate) fn new(running: String, source: Option<Arc<dyn Configuration>>) -> Self {
        Self { running: Arc::new(RunningConfiguration(RwLock::new(running))), source }
    }

    /// Returns the configuration of the running program.
    pub(crate) fn running(&self) -> Result<Value> {
        parsed(&self.running.json())
    }

    /// Returns the configuration that applies after a restart.
    pub(crate) async fn next(&self) -> Result<Value> {
        match self.source.clone() {
            Some(source) => parsed(&off_workers(move || source.shown()).await?),
            None => self.running(),
        }
    }

    /// Changes the configuration, and returns the new one.
    pub(crate) async fn change(&self, changes: Vec<Change>, is_dry: bool) -> Result<Value> {
        let why = "the program that embeds this gateway has its configuration in no file, so it cannot be changed here";
        let source = self.source.clone().ok_or_else(|| Error::unsupported(why))?;
        parsed(&off_workers(move || source.change(&changes, is_dry)).await?)
    }
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| Error::internal("the configuration is not JSON").with_source(e))
}
