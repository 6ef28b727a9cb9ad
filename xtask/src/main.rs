//! `cargo xtask test`: everything that must hold before a change lands.

mod browser;
mod places;
mod python;

use std::env;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask <command>

  test      formatting, lints, all tests, doc tests, documentation, the pages in a browser, and what Python reads
  browser   the pages in a browser alone
  python    what Python's packages read of answers alone
  codegen   writes the code of crates/ipfrs-proto anew from proto/
";

fn main() -> ExitCode {
    let asked: Vec<String> = env::args().skip(1).collect();
    let done = match asked.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test(),
        ["browser"] => browser::test(),
        ["python"] => python::test(),
        ["codegen"] => codegen(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The steps, cheapest first, so that a slip shows soon.
fn test() -> Result<()> {
    cargo("formatting", &["fmt", "--all", "--check"], &[])?;
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])?;
    cargo("tests", &["test", "--workspace", "--no-fail-fast"], &[])?;
    cargo("documentation", &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    browser::test()?;
    python::test()
}

/// The test that compares the generated code with `proto/` writes it when it is asked to.
fn codegen() -> Result<()> {
    let test = ["test", "--quiet", "--package", "ipfrs-proto", "--test", "generated", "generated_code"];
    cargo("code generation", &test, &[("IPFRS_CODEGEN", "write")])
}

/// Runs cargo, the one that runs this program, and says how long it took.
fn cargo(step: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    eprintln!("xtask: {step}: cargo {}", arguments.join(" "));
    let start = Instant::now();
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("{step}: cargo could not be started"))?;
    if !status.success() {
        bail!("{step} failed: cargo {}", arguments.join(" "));
    }
    eprintln!("xtask: {step}: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
