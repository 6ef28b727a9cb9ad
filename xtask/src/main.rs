//! `cargo xtask test` runs all checks that a change must pass; `cargo xtask bench-report` measures performance.

mod browser;
mod checks;
mod dist;
mod environment;
mod go;
mod long;
mod places;
mod plot;
mod profile;
mod python;
mod released;
mod report;
mod wheel;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use std::{env, iter};

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask <command>

  test      formatting, lints, all tests, doc tests, attacks of hostile clients, documentation, the pages in a browser,
            a peer in Go, and Python
            --fast: formatting, lints, and the tests of the packages that differ from main
            --long [PART...]: gc under load, kills, jumps of the clock, property tests with many cases,
            AddressSanitizer, and fuzzing. Lists at its end what ran, and fails if a tool is missing. With parts, only
            those: the name of a test, `AddressSanitizer`, `fuzzing`, the name of a fuzz target, or a part of a name
  browser   only the pages in a browser
  go        only the exchange of blocks with a peer in Go
  python    only `import ipfrs`, and the responses as Python's packages read them
  wheel     the wheel and the source distribution of `import ipfrs`, in target/wheels
  dist      the release in target/distribution: an archive, a Debian package, a list of the dependencies, checksums.
            The binary is optimised with a profile that is recorded while benchmarks run. At the end, both are unpacked
            and checked, and their daemons started
            --no-profile: without one, in half of the time
            --no-build: of the binary that is in target/dist
            --check: only the check of what is in target/distribution
  codegen   regenerates the code of crates/ipfrs-proto from proto/

  bench-report [TARGET[:PART,...] ...]
                 runs all comparisons, or only the given ones, and writes figures and plots into docs/PERFORMANCE.md; use a
                 quiet machine. The target `hostile` attacks the gateway, and writes into docs/SECURITY.md.
                 `kubo` compares a release build with Kubo. These two run only if they are given
  plots          redraws the plots of the last bench-report
";

fn main() -> ExitCode {
    let given_words: Vec<String> = env::args().skip(1).collect();
    let done = match given_words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => checks::all(),
        ["test", "--fast"] => checks::fast(),
        ["test", "--long", parts @ ..] => long::run(parts),
        ["browser"] => command_line("browser").and_then(|cli| browser::test(&cli)),
        ["go"] => command_line("go").and_then(|cli| go::test(&cli)),
        ["python"] => command_line("python").and_then(|cli| python::test(&cli)),
        ["wheel"] => wheel::publishable(),
        ["dist"] => dist::release(dist::Binary::Optimised),
        ["dist", "--no-profile"] => dist::release(dist::Binary::Plain),
        ["dist", "--no-build"] => dist::release(dist::Binary::Existing),
        ["dist", "--check"] => released::check(),
        ["codegen"] => codegen(),
        ["bench-report", parts @ ..] => report::measure(parts),
        ["plots"] => report::draw(),
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

/// Generates the code. The test that compares the generated code with `proto/` writes it if `IPFRS_CODEGEN` is
/// `write`.
fn codegen() -> Result<()> {
    let test = ["test", "--quiet", "--package", "ipfrs-proto", "--test", "generated", "generated_code"];
    cargo("code generation", &test, &[("IPFRS_CODEGEN", "write")])
}

/// Builds the command line for the tests that run it, and returns its path. The selection of packages and targets
/// gives dependencies the same features as `cargo test --workspace`, so that they are built only once.
fn command_line(step: &str) -> Result<PathBuf> {
    cargo(step, &["test", "--quiet", "--workspace", "--no-run", "--test", "cli"], &[])?;
    Ok(places::target()?.join("debug/ipfrs-cli"))
}

/// Returns the target for which the compiler builds by default.
fn host() -> Result<String> {
    let compiler = text_of(Command::new("rustc").arg("-vV"))?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV has no host")?;
    Ok(host.to_owned())
}

/// Runs the cargo that runs this program, and prints the duration.
fn cargo(step: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    run(step, cargo_command().args(arguments).envs(environment.iter().copied()))
}

/// Returns a command of the cargo that runs this program.
fn cargo_command() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    leave_package(&mut cargo);
    cargo
}

/// Removes the variables by which cargo describes the package that it runs. The build script of ring would run again,
/// and all that depends on ring be built again, whenever a build without this program follows one with it.
fn leave_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Runs a program, which inherits the standard streams, and prints the duration.
fn run(step: &str, command: &mut Command) -> Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    let line = words.join(" ");
    eprintln!("xtask: {step}: {line}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("{step}: {line} could not be started"))?;
    if !status.success() {
        bail!("{step} failed: {line}");
    }
    eprintln!("xtask: {step}: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the output of a program, which inherits the standard error.
fn text_of(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start a program")?;
    if !output.status.success() {
        bail!("{} failed", command.get_program().display());
    }
    Ok(String::from_utf8(output.stdout)?)
}
