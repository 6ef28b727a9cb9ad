//! A session: the repo, configuration and API that result from the global flags.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_interface::{Config, Embedded, Flag, Settings, Sources, running_url};

use crate::api::Api;
use crate::args::Globals;

/// Maximum time for a daemon on this machine to report its repo. A slower daemon is considered absent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The resolved global flags.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) repo: PathBuf,
    pub(crate) config: Config,
    api: Option<String>,
}

/// Returns the repo given by the flags or the environment, or the default repo.
pub(crate) fn repo(globals: &Globals) -> Result<PathBuf> {
    match &globals.repo {
        Some(repo) if repo.is_file() => {
            bail!("{} is a file: --repo and IPFRS_PATH name the directory of the repo", repo.display())
        }
        Some(repo) => Ok(repo.clone()),
        None => std::env::home_dir()
            .map(|home| home.join(".ipfrs"))
            .ok_or_else(|| anyhow!("there is no home directory for the repo: set a path with --repo or IPFRS_PATH")),
    }
}

/// Returns the configuration file to read: the one given by the flags, or else the repo's, if it exists.
pub(crate) fn config_file(globals: &Globals) -> Result<Option<PathBuf>> {
    if globals.config.is_some() {
        return Ok(globals.config.clone());
    }
    let file = repo(globals)?.join("config.toml");
    Ok(file.try_exists().with_context(|| format!("cannot check for {}", file.display()))?.then_some(file))
}

/// Returns all settings from file, environment and flags.
pub(crate) fn settings(globals: &Globals, flags: Vec<Flag>) -> Result<Settings> {
    let mut sources = Sources::of_process(config_file(globals)?);
    sources.flags = flags;
    Ok(Settings::read(&sources)?)
}

impl Session {
    pub(crate) fn open(globals: &Globals, flags: Vec<Flag>) -> Result<Self> {
        Self::with(globals, settings(globals, flags)?.config()?)
    }

    /// Returns the session of a configuration that was read before.
    pub(crate) fn with(globals: &Globals, config: Config) -> Result<Self> {
        Ok(Self { repo: repo(globals)?, config, api: globals.api.clone() })
    }

    /// Starts the log of a command. Unlike a daemon's log, it contains only warnings and errors.
    pub(crate) fn start_quiet_log(&self) -> Result<()> {
        Ok(self.config.log.start_quiet()?)
    }

    /// Connects to the daemon given by the flags or running on the repo, and otherwise opens the repo. `command`
    /// identifies this process, as the holder of the repo, to other processes.
    pub(crate) async fn connect(&self, command: &str) -> Result<Api> {
        if let Some(api) = self.daemon().await? {
            return Ok(api);
        }
        let holder = format!("ipfrs-cli {command}");
        Ok(Api::local(Embedded::open(&self.config, &self.repo, &holder).await?))
    }

    /// Connects to the daemon given by the flags or running on the repo.
    pub(crate) async fn require_daemon(&self) -> Result<Api> {
        match self.daemon().await? {
            Some(api) => Ok(api),
            None => bail!(
                "no gateway is running on {}: start one with `ipfrs-cli gateway start`, or pass --api URL",
                self.repo.display()
            ),
        }
    }

    async fn daemon(&self) -> Result<Option<Api>> {
        if let Some(url) = &self.api {
            return Ok(Some(Api::remote(url)?));
        }
        let Some(url) = running_url(&self.repo)? else { return Ok(None) };
        // A killed daemon leaves its URL file behind, perhaps truncated, and another process may now use the port.
        // The daemon is used only if it reports that it serves this repo.
        let Ok(api) = Api::remote(&url) else { return Ok(None) };
        let probed = tokio::time::timeout(PROBE_TIMEOUT, api.repo_stat()).await;
        let Ok(Ok(stat)) = probed else { return Ok(None) };
        let is_ours = std::fs::canonicalize(&self.repo)
            .is_ok_and(|repo| stat.repo_path.is_some_and(|path| repo == Path::new(&path)));
        Ok(is_ours.then_some(api))
    }
}
