//! A daemon and clients in Go, which must be installed: Bitswap with boxo, the library of Kubo (`tests/go`),
//! go-ipfs-api (`tests/go/rpc`), certificates from pebble, an authority for tests (`tests/go/acme`), and the framing of
//! HTTP/2 with h2spec (`tests/go/h2spec`).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::places::{found, workspace};

/// Directories of the Go modules. Their dependencies exclude each other.
const MODULES: [&str; 4] = ["tests/go", "tests/go/rpc", "tests/go/acme", "tests/go/h2spec"];

/// Runs the tests of a command line of which Go and the modules are available. Otherwise prints the reason on a
/// separate line.
pub(crate) fn test(cli: &Path) -> Result<()> {
    let start = Instant::now();
    for module in MODULES {
        match go(module) {
            Ok(go) => run(go, module, cli)?,
            Err(reason) => eprintln!("xtask: go: SKIPPED {module}: {reason:#}"),
        }
    }
    eprintln!("xtask: go: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Returns a command that runs Go in the directory of a module, without downloading another version of Go.
fn command(module: &str) -> Result<Command> {
    let program = found("go").context("go is not on the PATH (Debian: apt-get install golang)")?;
    let mut go = Command::new(program);
    go.current_dir(workspace()?.join(module)).env("GOTOOLCHAIN", "local");
    Ok(go)
}

/// Downloads the dependencies of a module. Returns a command that runs Go.
///
/// # Errors
/// Returns an error that names the missing program, the version that is needed, or why the download failed.
fn go(module: &str) -> Result<Command> {
    let output = command(module)?.args(["mod", "download"]).output().context("go could not be started")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("go could not download the modules of the tests ({})", text.lines().last().unwrap_or_default());
    }
    command(module)
}

fn run(mut go: Command, module: &str, cli: &Path) -> Result<()> {
    // `-count=1`: the result depends on the daemon, which Go does not know.
    let arguments = ["test", "-count=1", "-timeout=300s", "./..."];
    eprintln!("xtask: go: go {} in {module}", arguments.join(" "));
    let status = go.args(arguments).env("IPFRS_CLI", cli).status().context("go could not be started")?;
    ensure!(status.success(), "go failed: go {}", arguments.join(" "));
    Ok(())
}
