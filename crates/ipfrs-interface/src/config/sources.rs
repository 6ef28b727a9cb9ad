//! Sources of settings: a file, the environment, the text of an embedding program and command line flags.

use std::path::PathBuf;

/// Prefix of the environment variables that contain settings.
pub(super) const ENV_PREFIX: &str = "IPFRS_";
/// Variable with DNSLinks, which Kubo and related programs read as well.
pub(super) const LINKS_VARIABLE: &str = "IPFS_NS_MAP";

/// Sources of settings. Later ones take precedence: file, environment, text, flags.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Path of the configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Whether that file may be missing, which is the same as an empty one.
    pub is_file_optional: bool,
    /// Environment variables. Only `IPFS_NS_MAP` and those named `IPFRS_{SECTION}_{KEY}` are read.
    pub environment: Vec<(String, String)>,
    /// TOML from the embedding program, in the format of the file. Errors call it `config`.
    pub text: Option<String>,
    /// Command line flags that set a key.
    pub flags: Vec<Flag>,
    /// Directory of the repo, if it is known. Changes of the file then check the files that the settings name.
    pub repo: Option<PathBuf>,
}

/// A command line flag that sets a key.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as the user wrote it: `--port`.
    pub flag: &'static str,
    /// The key that it sets: `("server", "port")`.
    pub key: (&'static str, &'static str),
    /// Value for the key.
    pub value: String,
}

impl Sources {
    /// Returns the sources of the process: its environment and `file`.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>) -> Self {
        // A variable whose name is not Unicode cannot be a setting.
        let environment = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let environment = environment.filter(|(name, _)| name.starts_with(ENV_PREFIX) || name == LINKS_VARIABLE);
        Self {
            file,
            is_file_optional: false,
            environment: environment.map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect(),
            text: None,
            flags: Vec::new(),
            repo: None,
        }
    }
}
