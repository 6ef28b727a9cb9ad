//! Python environments: the available interpreters, and virtual environments under `target/`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::places::{found, target};

/// Minor versions of Python 3 to look for, from the oldest that the wheels support to the newest.
const MINORS: RangeInclusive<u32> = 9..=14;

/// A virtual environment.
pub(crate) struct Environment {
    directory: PathBuf,
}

impl Environment {
    /// Returns the environment `target/{name}`, and creates it if it does not exist or has no working pip.
    ///
    /// # Errors
    /// Returns an error that names the missing program and the remedy.
    pub(crate) fn kept(name: &str, python: &Path) -> Result<Self> {
        let environment = Self { directory: target()?.join(name) };
        if environment.command().args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success()) {
            return Ok(environment);
        }
        Self::fresh(name, python)
    }

    /// Creates the environment `target/{name}` anew, with pip only.
    ///
    /// # Errors
    /// See [`kept`](Self::kept).
    pub(crate) fn fresh(name: &str, python: &Path) -> Result<Self> {
        let environment = Self { directory: target()?.join(name) };
        let mut make = Command::new(python);
        make.args(["-m", "venv", "--clear"]).arg(&environment.directory);
        quietly(&mut make, "python3 -m venv failed (Debian: apt-get install python3-venv)")?;
        Ok(environment)
    }

    /// Returns the environment `target/{name}` with the packages in a pip requirements file. The packages are
    /// installed once, and again when the file changes.
    ///
    /// # Errors
    /// See [`kept`](Self::kept).
    pub(crate) fn with(name: &str, requirements: &Path) -> Result<Self> {
        let python = found("python3").context("python3 is not on the PATH (Debian: apt-get install python3-venv)")?;
        let required = fs::read(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
        // A copy of the installed requirements, written after the installation.
        let installed = target()?.join(name).join("requirements.txt");
        if fs::read(&installed).ok().as_ref() == Some(&required) {
            return Self::kept(name, &python);
        }
        eprintln!("xtask: python: downloading the packages of {}", requirements.display());
        let environment = Self::fresh(name, &python)?;
        environment.install(
            &[OsStr::new("--requirement"), requirements.as_os_str()],
            "pip could not download the packages: Python 3.11 or newer is needed",
        )?;
        fs::write(&installed, required).with_context(|| format!("cannot write {}", installed.display()))?;
        Ok(environment)
    }

    /// Returns a command that runs the interpreter without the `IPFRS_` variables of this process.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.directory.join("bin/python"));
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPFRS_")) {
            command.env_remove(name);
        }
        crate::leave_package(&mut command);
        command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs `pip install`. The error contains the last line of pip's output.
    pub(crate) fn install(&self, arguments: &[&OsStr], failure: &str) -> Result<()> {
        let mut install = self.command();
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(arguments);
        quietly(&mut install, failure)
    }

    /// Installs a wheel without its dependencies and replaces any installed version.
    pub(crate) fn install_wheel(&self, wheel: &Path) -> Result<()> {
        let options = ["--force-reinstall", "--no-deps", "--no-index"].map(OsStr::new);
        let arguments: Vec<_> = options.into_iter().chain([wheel.as_os_str()]).collect();
        self.install(&arguments, "pip could not install the wheel")
    }
}

/// Returns the interpreter of each supported Python version ("3.12"), from the `PATH` or from pyenv, if it is
/// installed.
pub(crate) fn interpreters() -> Vec<(String, Option<PathBuf>)> {
    let home = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let of_pyenv: Vec<PathBuf> = home
        .and_then(|home| fs::read_dir(home.join("versions")).ok())
        .map_or_else(Vec::new, |all| all.filter_map(|entry| Some(entry.ok()?.path())).collect());
    MINORS
        .map(|minor| {
            let version = format!("3.{minor}");
            let is_of = |directory: &&PathBuf| {
                let name = directory.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&format!("{version}."))
            };
            let there = of_pyenv.iter().filter(is_of).map(|directory| directory.join("bin/python"));
            let mut candidates = found(&format!("python{version}")).into_iter().chain(there);
            let interpreter = candidates.find(|python| is_version(python, &version));
            (version, interpreter)
        })
        .collect()
}

/// Whether an interpreter has the version in its name. pyenv's shims on the `PATH` also exist for disabled versions.
fn is_version(python: &Path, version: &str) -> bool {
    let print = "import sys, venv; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(python).args(["-c", print]).stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success() && String::from_utf8_lossy(&output.stdout).trim() == version)
}

/// Runs a program without showing its output. The error contains the last line of the program's error output.
fn quietly(command: &mut Command, failure: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program} could not be started"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{failure} ({})", text.lines().last().unwrap_or_default());
    }
    Ok(())
}
