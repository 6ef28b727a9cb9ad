//! What bench targets read of their command line and of their environment.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// What a bench target was started for.
#[derive(Debug)]
pub enum Asked {
    /// To measure.
    Measure(Arguments),
    /// To be another program in this role, with what follows it on the command line.
    Child(&'static str, Vec<String>),
    /// For nothing: another bench target is meant.
    Nothing,
}

/// Where figures go, and how many are wanted.
#[derive(Debug, Default)]
pub struct Arguments {
    /// `--write`: a Markdown file for the figures.
    pub write: Option<PathBuf>,
    /// `--json`: a file for the figures and for what is drawn of them.
    pub json: Option<PathBuf>,
    /// `--only`: the parts that are measured; all where it names none.
    pub only: Vec<String>,
    /// `--require-peers`, or `CI` in the environment: a missing peer is an error.
    pub require_peers: bool,
    /// Whether it is asked how fast things are. `cargo test --benches` only wants to see that they work.
    pub is_full: bool,
}

impl Asked {
    /// Reads the arguments of the target `target`, which can be started in each of `roles`.
    ///
    /// # Errors
    /// With `usage`, when there is one that no target has.
    pub fn parse(
        target: &str,
        roles: &[&'static str],
        usage: &str,
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self> {
        let mut asked = Arguments { require_peers: env::var_os("CI").is_some(), ..Arguments::default() };
        let (mut is_bench, mut is_test) = (false, false);
        while let Some(argument) = arguments.next() {
            if let Some(role) = roles.iter().find(|role| **role == argument) {
                return Ok(Self::Child(role, arguments.collect()));
            }
            let mut file = || {
                let path = arguments.next().with_context(|| format!("{argument} names no file"))?;
                Ok::<_, anyhow::Error>(Some(workspace_file(&path)))
            };
            match argument.as_str() {
                "--write" => asked.write = file()?,
                "--json" => asked.json = file()?,
                "--only" => {
                    let parts = arguments.next().context("--only names no part")?;
                    asked.only = parts.split(',').map(str::to_owned).collect();
                }
                "--require-peers" => asked.require_peers = true,
                "--bench" => is_bench = true,
                "--test" => is_test = true,
                // What `cargo bench NAME` hands to every target.
                filter if !filter.starts_with('-') => {
                    if !target.contains(filter) {
                        return Ok(Self::Nothing);
                    }
                }
                other => bail!("unknown argument {other:?}\n{usage}"),
            }
        }
        asked.is_full = is_bench && !is_test;
        Ok(Self::Measure(asked))
    }
}

impl Arguments {
    /// Whether the part `name` of a target is to be measured.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// A file that was named on the command line: cargo runs targets in the package's directory, people type paths in the
/// workspace's.
fn workspace_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The number in an environment variable, or `default` where it is not set.
///
/// # Errors
/// When it is no number, with the variable's name.
pub fn number<T: FromStr>(name: &str, default: T) -> Result<T> {
    match env::var(name) {
        Ok(value) => value.parse().ok().with_context(|| format!("{name} = {value:?} is no number")),
        Err(_) => Ok(default),
    }
}
