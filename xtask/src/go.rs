//! Bitswap between a daemon and boxo, the Go library of Kubo: `tests/go`, which needs Go.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::places::{found, workspace};

/// Runs the tests if Go and their modules are available. Otherwise prints the reason on a separate line at the end.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    match go() {
        Ok(go) => run(go)?,
        Err(reason) => {
            eprintln!("xtask: go: SKIPPED, no Go peer was tested: {reason:#}");
            return Ok(());
        }
    }
    eprintln!("xtask: go: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Returns a command that runs Go in the directory of the tests, without downloading another version of Go.
fn command() -> Result<Command> {
    let program = found("go").context("go is not on the PATH (Debian: apt-get install golang)")?;
    let mut go = Command::new(program);
    go.current_dir(workspace()?.join("tests/go")).env("GOTOOLCHAIN", "local");
    Ok(go)
}

/// Downloads the modules of the tests. Returns a command that runs Go.
///
/// # Errors
/// Returns an error that names the missing program, the version that is needed, or why the download failed.
fn go() -> Result<Command> {
    let output = command()?.args(["mod", "download"]).output().context("go could not be started")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("go could not download the modules of the tests ({})", text.lines().last().unwrap_or_default());
    }
    command()
}

fn run(mut go: Command) -> Result<()> {
    let cli = crate::command_line("go")?;
    // `-count=1`: the result depends on the daemon, which Go does not know.
    let arguments = ["test", "-count=1", "-timeout=300s", "./..."];
    eprintln!("xtask: go: go {} in tests/go", arguments.join(" "));
    let status = go.args(arguments).env("IPFRS_CLI", cli).status().context("go could not be started")?;
    ensure!(status.success(), "go failed: go {}", arguments.join(" "));
    Ok(())
}
