//! Command-line arguments and environment variables of the bench targets.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// Task that a bench target was started for.
#[derive(Debug)]
pub enum Asked {
    /// Measure.
    Measure(Arguments),
    /// Run as a child process in this role, with the arguments that follow it on the command line.
    Child(&'static str, Vec<String>),
    /// Do nothing: the command line names another bench target.
    Nothing,
}

/// Arguments of a measurement.
#[derive(Debug, Default)]
pub struct Arguments {
    /// `--write`: the Markdown file that receives the figures.
    pub write: Option<PathBuf>,
    /// `--json`: the file that receives the figures and the charts.
    pub json: Option<PathBuf>,
    /// `--only`: the parts to measure. Empty means all parts.
    pub only: Vec<String>,
    /// Whether a missing peer is an error (`--require-peers`, or `CI` in the environment of a full measurement).
    pub require_peers: bool,
    /// Whether this is a full measurement. `cargo test --benches` only checks that the targets work.
    pub is_full: bool,
}

impl Asked {
    /// Parses the command line of the target `target`, which can also run in each of `roles`.
    ///
    /// # Errors
    /// Returns an error with `usage` if an argument is unknown.
    pub fn parse(
        target: &str,
        roles: &[&'static str],
        usage: &str,
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self> {
        let mut parsed = Arguments::default();
        let (mut is_bench, mut is_test) = (false, false);
        let mut unknown = None;
        while let Some(argument) = arguments.next() {
            if let Some(role) = roles.iter().find(|role| **role == argument) {
                return Ok(Self::Child(role, arguments.collect()));
            }
            let mut file = || {
                let path = arguments.next().with_context(|| format!("{argument} needs a file"))?;
                Ok::<_, anyhow::Error>(Some(workspace_file(&path)))
            };
            match argument.as_str() {
                "--write" => parsed.write = file()?,
                "--json" => parsed.json = file()?,
                "--only" => {
                    let parts = arguments.next().context("--only needs a part")?;
                    parsed.only = parts.split(',').map(str::to_owned).collect();
                }
                "--require-peers" => parsed.require_peers = true,
                "--bench" => is_bench = true,
                "--test" => is_test = true,
                // `cargo bench NAME` passes NAME to every target.
                filter if !filter.starts_with('-') => {
                    if !target.contains(filter) {
                        return Ok(Self::Nothing);
                    }
                }
                other => unknown = Some(other.to_owned()),
            }
        }
        parsed.is_full = is_bench && !is_test;
        // `cargo test` passes arguments for test harnesses, such as `--nocapture`, to every target.
        if let Some(argument) = unknown.filter(|_| is_bench) {
            bail!("unknown argument {argument:?}\n{usage}");
        }
        parsed.require_peers |= parsed.is_full && env::var_os("CI").is_some();
        Ok(Self::Measure(parsed))
    }
}

impl Arguments {
    /// Whether the part `name` of a target is to be measured.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Resolves a path from the command line against the workspace root. Cargo runs targets in the directory of the
/// package, but users type paths relative to the workspace.
fn workspace_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the number in the environment variable `name`, or `default` if the variable is not set.
///
/// # Errors
/// Returns an error with the name of the variable if its value is not a number.
pub fn number<T: FromStr>(name: &str, default: T) -> Result<T> {
    match env::var(name) {
        Ok(value) => value.parse().ok().with_context(|| format!("{name} = {value:?} is not a number")),
        Err(_) => Ok(default),
    }
}
