//! A profile of the program's use, with which the compiler optimises the program of a release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::places::{emptied, found, target};
use crate::{cargo, run, text_of};

/// Requests that are typical: benchmarks with their parts, in the short form that their tests run.
const TRAINING: [(&str, &str); 2] = [
    ("peers", "large,ranges,tensors,small,many,trace,http2,tls,batches,cold,compression,uploads"),
    ("grpc", "calls,file"),
];
/// Size of the training: files of `many`, objects of `trace`.
const SIZES: [(&str, &str); 2] = [("FILES", "20000"), ("TRACE_OBJECTS", "5000")];

/// Builds the program, records a profile while the benchmarks use it, and builds it again with the profile. Returns the
/// path of the program.
///
/// # Errors
/// Returns an error if the tools of LLVM are missing or a step fails.
pub(crate) fn optimised_program() -> Result<PathBuf> {
    let compiler = text_of(Command::new("rustc").arg("-vV"))?;
    let merge = merge_tool(&compiler)?;
    // With a target, cargo does not instrument build scripts and macros.
    let host = field(&compiler, "host: ")?;
    let recorded = emptied(&target()?.join("profile"))?;
    let merged = recorded.join("merged.profdata");

    let program = built(host, &format!("-Cprofile-generate={}", recorded.display()))?;
    train(&program, &recorded)?;
    let mut records: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&recorded)? {
        records.push(entry?.path());
    }
    run("profile", Command::new(merge).args(["merge", "--output"]).arg(&merged).args(&records))?;
    built(host, &format!("-Cprofile-use={}", merged.display()))
}

/// Builds the program with one more flag of the compiler. Cargo would not notice that a profile has changed, so nothing
/// is kept of earlier builds.
fn built(host: &str, flag: &str) -> Result<PathBuf> {
    let directory = emptied(&target()?.join(host).join("dist"))?;
    let mut flags: Vec<String> = match env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(flags) => flags.split('\x1f').filter(|flag| !flag.is_empty()).map(str::to_owned).collect(),
        Err(_) => env::var("RUSTFLAGS").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    };
    flags.push(flag.to_owned());
    let build = ["build", "--locked", "--profile", "dist", "--package", "ipfrs-cli", "--target", host];
    cargo("build", &build, &[("CARGO_ENCODED_RUSTFLAGS", &flags.join("\x1f"))])?;
    Ok(directory.join("ipfrs-cli"))
}

/// Sends the program typical requests.
fn train(program: &Path, recorded: &Path) -> Result<()> {
    let program = program.to_str().context("the target directory has a name that is not UTF-8")?;
    // Each `%m` is for one build; processes merge their counts into one of four files.
    let pattern = recorded.join("%4m.profraw");
    let pattern = pattern.to_str().context("the target directory has a name that is not UTF-8")?;
    let environment = [&[("GATEWAY", program), ("LLVM_PROFILE_FILE", pattern)], &SIZES[..]].concat();
    for (bench, parts) in TRAINING {
        let test = ["test", "--quiet", "--locked", "--package", "ipfrs-benches", "--bench", bench];
        cargo("training", &[&test[..], &["--", "--only", parts]].concat(), &environment)?;
    }
    Ok(())
}

/// Returns the program that merges profiles. It must be of the compiler's version of LLVM.
fn merge_tool(compiler: &str) -> Result<PathBuf> {
    let version = field(compiler, "LLVM version: ")?;
    let major = version.split('.').next().unwrap_or_default();
    let sysroot = text_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let of_rustup = Path::new(sysroot.trim()).join("lib/rustlib").join(field(compiler, "host: ")?);
    let of_rustup = of_rustup.join("bin/llvm-profdata");
    if of_rustup.is_file() {
        return Ok(of_rustup);
    }
    let Some(tool) = found(&format!("llvm-profdata-{major}")) else {
        bail!(
            "there is no llvm-profdata of LLVM {major}: rustup component add llvm-tools, or apt-get install \
             llvm-{major}; --no-profile builds without it"
        )
    };
    Ok(tool)
}

/// Returns what follows `name` in the output of `rustc -vV`.
fn field<'a>(compiler: &'a str, name: &str) -> Result<&'a str> {
    compiler.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("rustc -vV has no {name}"))
}
