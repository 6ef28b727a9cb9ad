//! What the global flags lead to: a repo, a configuration, and somebody who answers requests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_interface::{Config, Flag, Local, LogConfig, Settings, Sources, running_url};

use crate::api::Api;
use crate::args::Globals;

/// A daemon on this machine that needs longer to say its version is not there.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The global flags, resolved.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) repo: PathBuf,
    pub(crate) config: Config,
    api: Option<String>,
}

/// The repo that the flags or the environment name.
pub(crate) fn repo(globals: &Globals) -> Result<PathBuf> {
    match &globals.repo {
        Some(repo) if repo.is_file() => {
            bail!("{} is a file: --repo and IPFRS_PATH name the directory of the repo", repo.display())
        }
        Some(repo) => Ok(repo.clone()),
        None => std::env::home_dir().map(|home| home.join(".ipfrs")).ok_or_else(|| {
            anyhow!("there is no home directory to keep the repo in: name one with --repo or IPFRS_PATH")
        }),
    }
}

/// The configuration file that is read: the one that was named, or the repo's where there is one.
pub(crate) fn config_file(globals: &Globals) -> Result<Option<PathBuf>> {
    if globals.config.is_some() {
        return Ok(globals.config.clone());
    }
    let file = repo(globals)?.join("config.toml");
    Ok(file.try_exists().with_context(|| format!("cannot look for {}", file.display()))?.then_some(file))
}

/// Every setting of file, environment and flags.
pub(crate) fn settings(globals: &Globals, flags: Vec<Flag>) -> Result<Settings> {
    let mut sources = Sources::of_process(config_file(globals)?);
    sources.flags = flags;
    Ok(Settings::read(&sources)?)
}

impl Session {
    pub(crate) fn open(globals: &Globals, flags: Vec<Flag>) -> Result<Self> {
        let config = settings(globals, flags)?.config()?;
        Ok(Self { repo: repo(globals)?, config, api: globals.api.clone() })
    }

    /// The log of a command, as opposed to a daemon's: only what needs attention.
    pub(crate) fn start_quiet_log(&self) -> Result<()> {
        Ok(LogConfig { level: "warn".to_owned(), ..self.config.log.clone() }.start()?)
    }

    /// The daemon that was named or that runs on the repo; else the repo itself. `command` tells others who holds it.
    pub(crate) async fn connect(&self, command: &str) -> Result<Api> {
        if let Some(api) = self.daemon().await? {
            return Ok(api);
        }
        let holder = format!("ipfrs-cli {command}");
        Ok(Api::local(Local::open(&self.config, &self.repo, &holder).await?))
    }

    /// The daemon that was named or that runs on the repo.
    pub(crate) async fn require_daemon(&self) -> Result<Api> {
        match self.daemon().await? {
            Some(api) => Ok(api),
            None => bail!(
                "no gateway runs on {}: start one with `ipfrs-cli gateway start`, or name one with --api URL",
                self.repo.display()
            ),
        }
    }

    async fn daemon(&self) -> Result<Option<Api>> {
        if let Some(url) = &self.api {
            return Ok(Some(Api::remote(url)?));
        }
        let Some(url) = running_url(&self.repo)? else { return Ok(None) };
        // A daemon that was killed leaves its URL behind, perhaps cut off, and the port may be somebody else's by now:
        // only a daemon that says that it serves this repo is believed.
        let Ok(api) = Api::remote(&url) else { return Ok(None) };
        let asked = tokio::time::timeout(PROBE_TIMEOUT, api.repo_stat()).await;
        let Ok(Ok(stat)) = asked else { return Ok(None) };
        let is_ours = std::fs::canonicalize(&self.repo).is_ok_and(|repo| Path::new(&stat.repo_path) == repo);
        Ok(is_ours.then_some(api))
    }
}
