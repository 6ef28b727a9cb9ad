//! The wheel of `crates/ipfrs-python`, and the source distribution.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::environment::Environment;
use crate::places::{found, target, workspace};

/// Where the package is.
pub(crate) fn package() -> Result<PathBuf> {
    Ok(workspace()?.join("crates/ipfrs-python"))
}

/// The wheel of the code as it is, of the profile that tests are built with: it shares what they have built, and is quick to
/// make rather than small.
pub(crate) fn of_tests(environment: &Environment) -> Result<PathBuf> {
    let directory = emptied("python-wheel")?;
    let options = ["--quiet", "--profile", "dev", "--auditwheel", "skip", "--compression-level", "1"];
    maturin(environment, "build", &options, &directory)?;
    only(&directory, "whl")
}

/// `cargo xtask wheel`: what would be published, in `target/wheels`, looked at by twine and installed from there.
///
/// # Errors
/// The step that failed.
pub(crate) fn publishable() -> Result<()> {
    let environment = Environment::with(crate::python::ENVIRONMENT, &crate::python::requirements()?)?;
    let directory = emptied("wheels")?;
    maturin(&environment, "build", &["--quiet", "--auditwheel", "check", "--compatibility", "pypi"], &directory)?;
    maturin(&environment, "sdist", &[], &directory)?;
    let (wheel, source) = (only(&directory, "whl")?, only(&directory, "gz")?);
    crate::run("wheel", environment.command().args(["-m", "twine", "check", "--strict"]).args([&wheel, &source]))?;

    let python = found("python3").context("python3 is not on the PATH")?;
    let installed = Environment::fresh("wheel-venv", &python)?;
    installed.install(&[wheel.as_os_str()], "pip does not take the wheel, or could not fetch what it wants")?;
    crate::run("wheel", installed.command().args(["-c", "import ipfrs; print(ipfrs.__version__)"]))?;
    for file in [&wheel, &source] {
        let size = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
        eprintln!("xtask: wheel: {} ({size} bytes)", file.display());
    }
    let name = wheel.to_string_lossy();
    if let Some((_, version)) = name.rsplit_once("manylinux_") {
        let version: Vec<&str> = version.splitn(3, '_').take(2).collect();
        eprintln!(
            "xtask: wheel: for Linux with glibc {} or newer: build in an older system for an older one",
            version.join(".")
        );
    }
    Ok(())
}

fn maturin(environment: &Environment, command: &str, options: &[&str], directory: &Path) -> Result<()> {
    let mut maturin = environment.command();
    maturin.args(["-m", "maturin", command]).args(options);
    crate::run("wheel", maturin.arg("--out").arg(directory).current_dir(package()?))
}

/// A directory under `target/` without distributions of earlier times.
fn emptied(name: &str) -> Result<PathBuf> {
    let directory = target()?.join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    Ok(directory)
}

/// The one file with an extension in a directory.
fn only(directory: &Path, extension: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|file| file.extension() == Some(OsStr::new(extension)));
    file.with_context(|| format!("maturin left no .{extension} in {}", directory.display()))
}
