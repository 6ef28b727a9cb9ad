//! The wheel and the source distribution of `crates/ipfrs-python`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::environment::Environment;
use crate::places::{found, target, workspace};

/// Feature of the Python module that gives its dependencies the features of the tests.
const AS_TESTED: &str = "as-tested";

/// Returns the directory of the package.
pub(crate) fn package() -> Result<PathBuf> {
    Ok(workspace()?.join("crates/ipfrs-python"))
}

/// Builds a wheel of the current code for the tests. Profile and features are those of `cargo test --workspace`, so
/// that the dependencies are built only once.
pub(crate) fn of_tests(environment: &Environment) -> Result<PathBuf> {
    let directory = emptied("python-wheel")?;
    let profile = ["--quiet", "--profile", "dev", "--features", AS_TESTED];
    let options = [&profile[..], &["--auditwheel", "skip", "--compression-level", "1"]].concat();
    maturin(environment, "build", &options, &directory)?;
    only(&directory, "whl")
}

/// `cargo xtask wheel`: builds the distributions for publication in `target/wheels`, checks them with twine, and
/// installs the wheel.
///
/// # Errors
/// Returns an error if a step fails.
pub(crate) fn publishable() -> Result<()> {
    let environment = Environment::with(crate::python::ENVIRONMENT, &crate::python::requirements()?)?;
    let directory = emptied("wheels")?;
    maturin(&environment, "build", &["--quiet", "--auditwheel", "check", "--compatibility", "pypi"], &directory)?;
    maturin(&environment, "sdist", &[], &directory)?;
    let (wheel, source) = (only(&directory, "whl")?, only(&directory, "gz")?);
    crate::run("wheel", environment.command().args(["-m", "twine", "check", "--strict"]).args([&wheel, &source]))?;

    let python = found("python3").context("python3 is not on the PATH")?;
    let installed = Environment::fresh("wheel-venv", &python)?;
    installed.install(&[wheel.as_os_str()], "pip could not install the wheel or download its dependencies")?;
    crate::run("wheel", installed.command().args(["-c", "import ipfrs; print(ipfrs.__version__)"]))?;
    for file in [&wheel, &source] {
        let size = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
        eprintln!("xtask: wheel: {} ({size} bytes)", file.display());
    }
    let name = wheel.to_string_lossy();
    if let Some((_, version)) = name.rsplit_once("manylinux_") {
        let version: Vec<&str> = version.splitn(3, '_').take(2).collect();
        eprintln!(
            "xtask: wheel: for Linux with glibc {} or newer: build on an older system to support an older glibc",
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

/// Removes a directory under `target/` with earlier distributions, and returns its path.
fn emptied(name: &str) -> Result<PathBuf> {
    let directory = target()?.join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    Ok(directory)
}

/// Returns the only file with an extension in a directory.
fn only(directory: &Path, extension: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|file| file.extension() == Some(OsStr::new(extension)));
    file.with_context(|| format!("maturin wrote no .{extension} in {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::AS_TESTED;

    /// Returns each dependency of a selection of packages, with its version and features.
    fn dependencies(selection: &[&str]) -> BTreeSet<String> {
        let format = ["--prefix", "none", "--format", "{p} {f}"];
        let mut tree = Command::new(env!("CARGO"));
        let output = tree.args(["tree", "--offline", "--quiet"]).args(format).args(selection).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines.lines().filter(|line| !line.contains("ipfrs-"));
        // An asterisk marks a package whose own dependencies were listed before.
        lines.map(|line| line.replace(" (proc-macro)", "").trim_end_matches(" (*)").trim_end().to_owned()).collect()
    }

    #[test]
    fn python_tests_share_the_dependencies_of_the_workspace_tests() {
        let module = dependencies(&["--package", "ipfrs-python", "--features", AS_TESTED, "--edges", "normal,build"]);
        let tests = dependencies(&["--workspace", "--edges", "normal,build,dev"]);
        let built_again: Vec<_> = module.difference(&tests).collect();
        assert!(built_again.is_empty(), "tests/features/Cargo.toml lacks features of: {built_again:#?}");
    }
}
