//! `import ipfrs` from its wheel, and what Python's packages read of a gateway's answers: both need Python with venv and pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::environment::{Environment, interpreters};
use crate::places::{target, workspace};
use crate::wheel;

/// The environment with all packages that tests want, under `target/`.
pub(crate) const ENVIRONMENT: &str = "python-venv";

/// What is installed into it.
pub(crate) fn requirements() -> Result<PathBuf> {
    Ok(workspace()?.join("tests/python/requirements.txt"))
}

/// Runs the tests where they can run. Where they cannot, this says so, in a line of its own.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    match Environment::with(ENVIRONMENT, &requirements()?) {
        Ok(environment) => run(&environment)?,
        Err(reason) => {
            eprintln!(
                "xtask: python: SKIPPED, `import ipfrs` was not tried, no package of Python read what is sent: {reason:#}"
            );
            return Ok(());
        }
    }
    eprintln!("xtask: python: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn run(environment: &Environment) -> Result<()> {
    let cli = crate::command_line("python")?;
    let wheel = wheel::of_tests(environment)?;
    environment.install_wheel(&wheel)?;

    // With the environment's Python. What a program writes beside its results goes below target/.
    let python = |arguments: &[&str]| -> Result<Command> {
        let mut command = environment.command();
        command.args(arguments).current_dir(wheel::package()?).env("IPFRS_CLI", &cli);
        command.env("MYPY_CACHE_DIR", target()?.join("mypy")).env("RUFF_NO_CACHE", "true");
        Ok(command)
    };
    crate::run("python", python(&["tensors.py"])?.current_dir(workspace()?.join("tests/python")))?;
    crate::run("python", &mut python(&["-m", "ruff", "check", "python", "tests"])?)?;
    crate::run("python", &mut python(&["-m", "mypy"])?)?;
    let stubtest = ["-m", "mypy.stubtest", "ipfrs", "--allowlist", "tests/stubtest_allowed.txt"];
    crate::run("python", python(&stubtest)?.env("MYPYPATH", "python"))?;
    // The examples of docstrings are among them.
    crate::run("python", &mut python(&["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])?)?;
    for notebook in notebooks()? {
        let results = target()?.join("notebooks");
        let mut execute = python(&["-m", "nbconvert", "--to", "notebook", "--execute", "--log-level", "WARN"])?;
        execute.arg("--output-dir").arg(&results).arg(notebook);
        // No kernel and no setting of the user's.
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

/// One wheel is for every Python: a program without other packages tries it on each that is here.
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
        eprintln!("xtask: python: SKIPPED on Python {}: not here", missing.join(", "));
    }
    Ok(())
}
