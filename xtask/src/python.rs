//! Tests of the wheel with `import ipfrs`, and of gateway responses with Python packages. Both need Python with venv
//! and pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::environment::{Environment, interpreters};
use crate::places::{found, target, workspace};
use crate::wheel;

/// Environment under `target/` with all packages of the tests.
pub(crate) const ENVIRONMENT: &str = "python-venv";

/// Returns the path of the requirements file of the environment.
pub(crate) fn requirements() -> Result<PathBuf> {
    Ok(workspace()?.join("tests/python/requirements.txt"))
}

/// Builds what [`test()`] needs from cargo, if Python is available.
pub(crate) fn build() -> Result<()> {
    match Environment::with(ENVIRONMENT, &requirements()?) {
        Ok(environment) => wheel::of_tests(&environment).map(drop),
        Err(_) => Ok(()),
    }
}

/// Runs the tests of a command line if their tools are available. Otherwise prints the reason on a separate line.
pub(crate) fn test(cli: &Path) -> Result<()> {
    let start = Instant::now();
    match Environment::with(ENVIRONMENT, &requirements()?) {
        Ok(environment) => run(&environment, cli)?,
        Err(reason) => {
            eprintln!(
                "xtask: python: SKIPPED, `import ipfrs` was not tested, nor the responses with Python's packages: {reason:#}"
            );
            return Ok(());
        }
    }
    eprintln!("xtask: python: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn run(environment: &Environment, cli: &Path) -> Result<()> {
    let wheel = wheel::of_tests(environment)?;
    environment.install_wheel(&wheel)?;

    // Use the Python of the environment. Caches of the programs are below target/.
    let python = |arguments: &[&str]| -> Result<Command> {
        let mut command = environment.command();
        command.args(arguments).current_dir(wheel::package()?).env("IPFRS_CLI", cli);
        command.env("MYPY_CACHE_DIR", target()?.join("mypy")).env("RUFF_NO_CACHE", "true");
        Ok(command)
    };
    crate::run("python", python(&["tensors.py"])?.current_dir(workspace()?.join("tests/python")))?;
    crate::run("python", python(&["clients.py"])?.current_dir(workspace()?.join("tests/python")))?;
    crate::run("python", python(&["openapi.py"])?.current_dir(workspace()?.join("tests/python")))?;
    match ["prometheus", "promtool"].into_iter().find(|program| found(program).is_none()) {
        Some(missing) => eprintln!(
            "xtask: python: SKIPPED, dashboard and alerts were not tested: {missing} is not on the PATH (Debian: apt-get \
             install prometheus)"
        ),
        None => crate::run("python", python(&["monitoring.py"])?.current_dir(workspace()?.join("tests/python")))?,
    }
    crate::run("python", &mut python(&["-m", "ruff", "check", "python", "tests"])?)?;
    crate::run("python", &mut python(&["-m", "mypy"])?)?;
    let stubtest = ["-m", "mypy.stubtest", "ipfrs", "--allowlist", "tests/stubtest_allowed.txt"];
    crate::run("python", python(&stubtest)?.env("MYPYPATH", "python"))?;
    // This includes the examples in docstrings.
    crate::run("python", &mut python(&["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])?)?;
    for notebook in notebooks()? {
        let results = target()?.join("notebooks");
        let mut execute = python(&["-m", "nbconvert", "--to", "notebook", "--execute", "--log-level", "WARN"])?;
        execute.arg("--output-dir").arg(&results).arg(notebook);
        // Do not use kernels or settings of the user.
        execute.env("JUPYTER_PREFER_ENV_PATH", "1").env("JUPYTER_CONFIG_DIR", &results).env("IPYTHONDIR", &results);
        crate::run("python", &mut execute)?;
    }
    on_each_python(&wheel)
}

fn notebooks() -> Result<Vec<PathBuf>> {
    let directory = workspace()?.join("examples/notebooks");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut notebooks: Vec<_> = files.filter(|file| file.extension().is_some_and(|found| found == "ipynb")).collect();
    notebooks.sort();
    Ok(notebooks)
}

/// Runs the smoke test, which needs no other packages, with the wheel on each installed Python version.
fn on_each_python(wheel: &Path) -> Result<()> {
    let program = workspace()?.join("tests/python/smoke.py");
    let mut missing = Vec::new();
    for (version, python) in interpreters() {
        let Some(python) = python else {
            missing.push(version);
            continue;
        };
        let environment = Environment::kept(&format!("{ENVIRONMENT}-{version}"), &python)?;
        environment.install_wheel(wheel)?;
        crate::run("python", environment.command().arg("-I").arg(&program))?;
    }
    if !missing.is_empty() {
        eprintln!("xtask: python: SKIPPED on Python {}: not installed", missing.join(", "));
    }
    Ok(())
}
