//! What Python's packages read of a gateway's answers: `tests/python`, which needs Python with venv and pip.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::places::{found, target, workspace};

/// The programs, in the order in which they run. Each starts a daemon of its own.
const PROGRAMS: [&str; 1] = ["tensors.py"];

/// Runs the tests where they can run. Where they cannot, this says so, in a line of its own.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    match tools() {
        Ok(tools) => run(&tools)?,
        Err(reason) => {
            eprintln!("xtask: python: SKIPPED, no package of Python read what is sent: {reason:#}");
            return Ok(());
        }
    }
    eprintln!("xtask: python: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

struct Tools {
    /// Of the environment that has the packages.
    python: PathBuf,
    tests: PathBuf,
}

/// An environment under `target/` with the packages that `tests/python/requirements.txt` names.
///
/// # Errors
/// What is missing, and what to do about it.
fn tools() -> Result<Tools> {
    let python = found("python3").context("python3 is not on the PATH (Debian: apt-get install python3-venv)")?;
    let tests = workspace()?.join("tests/python");
    let (requirements, environment) = (tests.join("requirements.txt"), target()?.join("python-venv"));
    // A copy of what was installed, written last.
    let installed = environment.join("requirements.txt");
    let wanted = fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    if fs::read(&installed).ok().as_ref() != Some(&wanted) {
        let make = [OsStr::new("-m"), OsStr::new("venv"), OsStr::new("--clear"), environment.as_os_str()];
        step(&python, &make, "python3 -m venv failed (Debian: apt-get install python3-venv)")?;
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"].map(OsStr::new);
        let install: Vec<_> = install.into_iter().chain([requirements.as_os_str()]).collect();
        step(
            &environment.join("bin/python"),
            &install,
            "pip could not fetch the packages: Python 3.11 or newer is needed",
        )?;
        fs::write(&installed, wanted).with_context(|| format!("cannot write {}", installed.display()))?;
    }
    Ok(Tools { python: environment.join("bin/python"), tests })
}

fn step(program: &Path, arguments: &[&OsStr], failure: &str) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{} could not be started", program.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{failure} ({})", text.lines().last().unwrap_or_default());
    }
    Ok(())
}

fn run(tools: &Tools) -> Result<()> {
    crate::cargo("python", &["build", "--quiet", "--package", "ipfrs-cli"], &[])?;
    let cli = target()?.join("debug/ipfrs-cli");
    for program in PROGRAMS {
        eprintln!("xtask: python: {program} in tests/python");
        let status = Command::new(&tools.python)
            .arg(program)
            .current_dir(&tools.tests)
            .env("IPFRS_CLI", &cli)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .status()
            .context("python: the environment's python could not be started")?;
        if !status.success() {
            bail!("python failed: {program}");
        }
    }
    Ok(())
}
