//! Levels of the log, which operators change while the daemon runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ipfrs_core::{Error, Result};
use ipfrs_http::LogLevels;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::{EnvFilter, Registry};

/// Log of the process, of which there is one.
static PROCESS_LOG: OnceLock<Arc<ProcessLog>> = OnceLock::new();

/// Level of modules that no directive names.
const DEFAULT_LEVEL: &str = "error";

#[derive(Debug)]
struct ProcessLog {
    handle: Handle<EnvFilter, Registry>,
    directives: Mutex<Directives>,
}

/// Directives of a filter, by module. The empty module stands for all others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directives(BTreeMap<String, String>);

impl Directives {
    fn parse(text: &str) -> Self {
        let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
        let parts = directives.map(|directive| directive.rsplit_once('=').unwrap_or(("", directive)));
        Self(parts.map(|(module, level)| (module.to_owned(), level.to_owned())).collect())
    }

    fn text(&self) -> String {
        let directive = |(module, level): (&String, &String)| match module.as_str() {
            "" => level.clone(),
            module => format!("{module}={level}"),
        };
        self.0.iter().map(directive).collect::<Vec<_>>().join(",")
    }

    /// Returns the level of the longest prefix of `module` that a directive names.
    fn level(&self, module: &str) -> String {
        let named = self.0.iter().filter(|(name, _)| module.starts_with(name.as_str()));
        named.max_by_key(|(name, _)| name.len()).map_or(DEFAULT_LEVEL, |(_, level)| level).to_owned()
    }

    fn set(&mut self, module: Option<&str>, level: &str) {
        match module {
            Some(module) => drop(self.0.insert(module.to_owned(), level.to_owned())),
            None => self.0 = BTreeMap::from([(String::new(), level.to_owned())]),
        }
    }
}

/// Offers the log of the process to the RPC. `directives` are those of its filter.
pub(crate) fn offer(handle: Handle<EnvFilter, Registry>, directives: String) {
    let directives = Mutex::new(Directives::parse(&directives));
    // A process has one log, and starting a second one fails.
    let _ = PROCESS_LOG.set(Arc::new(ProcessLog { handle, directives }));
}

/// Returns the log of the process, if this program started it.
pub(crate) fn process_log() -> Option<Arc<dyn LogLevels>> {
    PROCESS_LOG.get().map(|log| Arc::clone(log) as Arc<dyn LogLevels>)
}

/// Replaces the filter of the process's log, if this program started it.
pub(crate) fn replace(directives: &str) -> Result<()> {
    PROCESS_LOG.get().map_or(Ok(()), |log| log.change(|current| *current = Directives::parse(directives)))
}

impl ProcessLog {
    fn change(&self, change: impl FnOnce(&mut Directives)) -> Result<()> {
        let mut directives = self.directives.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = directives.clone();
        change(&mut changed);
        let text = changed.text();
        let filter = EnvFilter::try_new(&text).map_err(|e| Error::invalid(format!("level {text:?}: {e}")))?;
        let failed = |e| Error::internal("the log can no longer be changed").with_source(e);
        self.handle.reload(filter).map_err(failed)?;
        *directives = changed;
        Ok(())
    }
}

impl LogLevels for ProcessLog {
    fn default_level(&self) -> String {
        self.level("")
    }

    fn level(&self, module: &str) -> String {
        self.directives.lock().unwrap_or_else(PoisonError::into_inner).level(module)
    }

    fn set(&self, module: Option<&str>, level: &str) -> Result<()> {
        self.change(|directives| directives.set(module, level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_of_the_longest_module_applies() {
        let mut directives = Directives::parse("libp2p=warn, info,ipfrs_http=debug");
        assert_eq!(directives.text(), "info,ipfrs_http=debug,libp2p=warn");
        let levels = |directives: &Directives| ["", "ipfrs_http::rpc", "ipfrs_node"].map(|name| directives.level(name));
        assert_eq!(levels(&directives), ["info", "debug", "info"]);
        directives.set(Some("ipfrs_node"), "trace");
        assert_eq!(levels(&directives), ["info", "debug", "trace"]);
        directives.set(None, "warn");
        assert_eq!(levels(&directives), ["warn"; 3]);
        assert_eq!(Directives::parse("").level("x"), DEFAULT_LEVEL);
    }
}
