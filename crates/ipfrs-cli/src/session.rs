//! A session: the repo, configuration and API that result from the global flags.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_core::ErrorKind;
use ipfrs_interface::{Config, Embedded, Flag, Settings, Sources, lock_holder, read_local_token, running_url};
use zeroize::Zeroizing;

use crate::api::Api;
use crate::args::Globals;
use crate::backup;

/// Maximum time for a daemon on this machine to report its repo, before a command looks whether the repo is free.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a daemon has refused a request because of others.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time for a daemon to report a repo that is not free.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why no daemon serves the repo.
pub(crate) enum Unserved {
    /// Nothing listens there, or it serves another repo.
    Absent,
    /// Something listens there and has too much to do. The text says how this showed.
    Busy(String),
}

/// The resolved global flags.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) repo: PathBuf,
    /// The defaults, if the configuration is invalid.
    pub(crate) config: Config,
    /// The mistake in the configuration, for a session that may only need a daemon.
    invalid: Option<String>,
    api: Option<String>,
    /// Token that the user gave.
    token: Option<Zeroizing<String>>,
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

/// Returns the path of the configuration file, which may not exist: the one given by the flags, or else the repo's.
pub(crate) fn config_path(globals: &Globals) -> Result<PathBuf> {
    match &globals.config {
        Some(file) => Ok(file.clone()),
        None => Ok(repo(globals)?.join("config.toml")),
    }
}

/// Returns the configuration file to read: the one given by the flags, or else the repo's, if it exists.
pub(crate) fn config_file(globals: &Globals) -> Result<Option<PathBuf>> {
    let file = config_path(globals)?;
    if globals.config.is_some() {
        return Ok(Some(file));
    }
    Ok(file.try_exists().with_context(|| format!("cannot check for {}", file.display()))?.then_some(file))
}

/// Returns the sources of settings: file, environment and flags.
pub(crate) fn sources(globals: &Globals, flags: Vec<Flag>) -> Result<Sources> {
    let is_file_optional = globals.config.is_none();
    let repo = repo(globals).ok();
    Ok(Sources { is_file_optional, flags, repo, ..Sources::of_process(Some(config_path(globals)?)) })
}

/// Returns all settings.
pub(crate) fn settings(globals: &Globals, flags: Vec<Flag>) -> Result<Settings> {
    Ok(Settings::read(&sources(globals, flags)?)?)
}

/// Returns the token that the user gave with `--token-file` or in the environment.
fn token(globals: &Globals) -> Result<Option<Zeroizing<String>>> {
    let given = match &globals.token_file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map(Zeroizing::new);
            Some(text.with_context(|| format!("cannot read the token in {}", file.display()))?)
        }
        None => std::env::var("IPFRS_TOKEN").ok().map(Zeroizing::new),
    };
    let given = given.map(|token| Zeroizing::new(token.trim().to_owned())).filter(|token| !token.is_empty());
    if given.is_none() && globals.token_file.is_some() {
        bail!("the file that --token-file names is empty");
    }
    Ok(given)
}

fn is_kind(error: &anyhow::Error, kind: ErrorKind) -> bool {
    error.downcast_ref::<ipfrs_core::Error>().is_some_and(|error| error.kind() == kind)
}

/// Whether a daemon refused the token of a request.
fn is_refused(error: &anyhow::Error) -> bool {
    is_kind(error, ErrorKind::Unauthenticated) || is_kind(error, ErrorKind::Forbidden)
}

impl Session {
    pub(crate) fn open(globals: &Globals, flags: Vec<Flag>) -> Result<Self> {
        Self::with(globals, settings(globals, flags)?.config()?)
    }

    /// Opens a session that fails with an invalid configuration only when it must open the repo itself. A daemon that
    /// runs has read its configuration before, and can be asked or stopped all the same.
    pub(crate) fn open_for_daemon(globals: &Globals) -> Result<Self> {
        match settings(globals, Vec::new()).and_then(|settings| Ok(settings.config()?)) {
            Ok(config) => Self::with(globals, config),
            Err(error) => {
                Ok(Self { invalid: Some(crate::describe(&error)), ..Self::with(globals, Config::default())? })
            }
        }
    }

    /// Returns the session of a configuration that was read before.
    pub(crate) fn with(globals: &Globals, config: Config) -> Result<Self> {
        Ok(Self { repo: repo(globals)?, config, invalid: None, api: globals.api.clone(), token: token(globals)? })
    }

    /// Starts the log of a command. Unlike a daemon's log, it contains only warnings and errors.
    pub(crate) fn start_quiet_log(&self) -> Result<()> {
        Ok(self.config.log.start_quiet()?)
    }

    /// Connects to the daemon given by the flags or running on the repo, and otherwise opens the repo. `command`
    /// identifies this process, as the holder of the repo, to other processes.
    pub(crate) async fn connect(&self, command: &str) -> Result<Api> {
        let unserved = match self.probe(PROBE_TIMEOUT).await? {
            Ok(api) => return Ok(api),
            Err(unserved) => unserved,
        };
        if let Some(why) = &self.invalid {
            return match unserved {
                Unserved::Busy(_) => self.require_daemon().await,
                Unserved::Absent => bail!("{why}"),
            };
        }
        self.check_is_no_backup()?;
        let holder = format!("ipfrs-cli {command}");
        let mut config = self.config.clone();
        // Only a daemon takes requests of peers, and another program may have the port.
        config.retrieval.bitswap.listen.clear();
        if let Unserved::Busy(how) = &unserved {
            let _ = writeln!(std::io::stderr(), "{how}: waiting for it, unless the repo is free");
        }
        match Embedded::open(&config, &self.repo, &holder).await {
            Ok(local) => Ok(Api::local(local)),
            Err(error) if error.kind() == ErrorKind::Conflict && matches!(unserved, Unserved::Busy(_)) => {
                match self.probe(BUSY_TIMEOUT).await? {
                    Ok(api) => Ok(api),
                    Err(Unserved::Absent) => Err(error.into()),
                    Err(Unserved::Busy(how)) => bail!("{how}, and {}: try again later", error.message()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses to open what `repo backup` has written as a repo, which would change it.
    fn check_is_no_backup(&self) -> Result<()> {
        if self.repo.join(backup::MARKER).exists() {
            bail!(
                "{} is a backup and no repo: check it with `ipfrs-cli repo restore {0} --check`, or restore it first",
                self.repo.display()
            );
        }
        Ok(())
    }

    /// Refuses a directory without a repo, for commands that only look at one. Others create a repo.
    pub(crate) fn require_repo(&self) -> Result<()> {
        self.check_is_no_backup()?;
        if self.invalid.is_some() {
            return Ok(());
        }
        // A repo without keys gets a new one, and a store may lie elsewhere.
        let is_there = |name| self.repo.join(name).exists() || self.store().join(name).exists();
        if self.api.is_none() && !["identity.key", "version", "packs", "pins.redb"].into_iter().any(is_there) {
            bail!("there is no repo in {}: give its path with --repo", self.repo.display());
        }
        Ok(())
    }

    /// Like [`Self::require_repo`], but a directory with a configuration is enough. It is no mistake, and the command
    /// may retrieve what it reads.
    pub(crate) fn require_repo_or_configuration(&self) -> Result<()> {
        match self.repo.join("config.toml").exists() {
            true => self.check_is_no_backup(),
            false => self.require_repo(),
        }
    }

    /// Looks for the daemon given by the flags or running on the repo, and waits for one that is busy.
    pub(crate) async fn find_daemon(&self) -> Result<Result<Api, Unserved>> {
        self.probe(BUSY_TIMEOUT).await
    }

    /// Connects to the daemon given by the flags or running on the repo.
    pub(crate) async fn require_daemon(&self) -> Result<Api> {
        match self.find_daemon().await? {
            Ok(api) => Ok(api),
            Err(Unserved::Busy(how)) => bail!("{how}: try again later, or pass --api URL"),
            Err(Unserved::Absent) if let Some(holder) = self.gateway_of_repo() => {
                bail!(
                    "{holder} has the repo {}, and its address is not known: it is starting or stopping, or pass --api URL",
                    self.repo.display()
                )
            }
            Err(Unserved::Absent) => bail!(
                "no gateway is running on {}: start one with `ipfrs-cli gateway start`, or pass --api URL",
                self.repo.display()
            ),
        }
    }

    /// Whether the user has given the URL of the daemon.
    pub(crate) fn is_api_given(&self) -> bool {
        self.api.is_some()
    }

    /// Returns the directory of the block store.
    pub(crate) fn store(&self) -> PathBuf {
        self.repo.join(self.config.store.path.as_deref().unwrap_or(Path::new(".")))
    }

    /// Returns the gateway that has this repo, whether it listens or not, if there is one.
    pub(crate) fn gateway_of_repo(&self) -> Option<String> {
        // A store may be elsewhere, or in memory.
        let holder = lock_holder(&self.store()).or_else(|| lock_holder(&self.repo));
        holder.filter(|holder| holder.contains("(ipfrs gateway)") && self.api.is_none())
    }

    /// Looks for the daemon given by the flags or running on the repo.
    async fn probe(&self, limit: Duration) -> Result<Result<Api, Unserved>> {
        let given = self.token.as_ref().map(|token| token.as_str());
        if let Some(url) = &self.api {
            return Ok(Ok(Api::remote(url, given)?));
        }
        let Some(url) = running_url(&self.repo)? else { return Ok(Err(Unserved::Absent)) };
        // A killed daemon leaves its URL file behind, perhaps truncated, and another process may now use the port.
        // The daemon is used only if it reports that it serves this repo. The user's token is sent only to a daemon
        // that is known to serve this repo. The local one is worth nothing after the daemon that wrote it has ended.
        let local = read_local_token(&self.repo);
        let Ok(api) = Api::remote(&url, local.as_ref().map(|token| token.as_str())) else {
            return Ok(Err(Unserved::Absent));
        };
        let mut refusal = None;
        let asked = async {
            loop {
                match api.repo_stat().await {
                    Err(error) if is_kind(&error, ErrorKind::RateLimited) => refusal = Some(error.to_string()),
                    answered => break answered,
                }
                tokio::time::sleep(REFUSAL_PAUSE).await;
            }
        };
        let probed = tokio::time::timeout(limit, asked).await;
        let stat = match probed {
            Ok(Ok(stat)) => stat,
            // Without this, the command would fail because the daemon holds the repo, and not say why.
            Ok(Err(error)) if is_refused(&error) => {
                return Err(
                    error.context(format!("a daemon may run on {}: name it with --api {url}", self.repo.display()))
                );
            }
            Ok(Err(_)) => return Ok(Err(Unserved::Absent)),
            Err(_) => {
                let silent = || format!("{url} has not answered in {} s", limit.as_secs());
                return Ok(Err(Unserved::Busy(refusal.unwrap_or_else(silent))));
            }
        };
        let is_ours = std::fs::canonicalize(&self.repo)
            .is_ok_and(|repo| stat.repo_path.is_some_and(|path| repo == Path::new(&path)));
        match given {
            _ if !is_ours => Ok(Err(Unserved::Absent)),
            Some(given) => Ok(Ok(Api::remote(&url, Some(given))?)),
            None => Ok(Ok(api)),
        }
    }
}
