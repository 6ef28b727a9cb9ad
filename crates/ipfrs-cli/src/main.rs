//! `ipfrs-cli`: runs the gateway, and adds and fetches content.

mod api;
mod args;
mod backup;
mod commands;
mod kubo;
mod kubo_words;
mod load;
mod output;
mod progress;
mod runtime;
mod session;
mod sources;
mod uri;

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

use clap::Parser;
use ipfrs_interface::is_panic_an_error;

use crate::args::Cli;
use crate::output::OutputClosed;
use crate::runtime::Interrupted;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code that shells report for a command that was terminated by SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs the program. Exit codes: 0 on success, 1 if the command failed, 2 for a usage error (set by clap), 130 after
/// an interrupt.
fn main() -> ExitCode {
    avoid_huge_pages();
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !is_panic_an_error() {
            report(panic);
        }
    }));
    let cli = Cli::try_parse().unwrap_or_else(|error| kubo_words::explain(error).exit());
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error, the exit code must do.
            let _ = writeln!(io::stderr(), "Error: {}", describe(&error));
            if error.is::<Interrupted>() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE }
        }
    }
}

/// Keeps the kernel from backing the allocator's memory with huge pages, of which a page that is touched once takes
/// 2 MiB: with dozens of threads the daemon would use several times the memory that it allocates.
fn avoid_huge_pages() {
    #[cfg(target_os = "linux")]
    {
        // If the kernel cannot do it, the program works nevertheless.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

const NO_PEERS: &str = "peers are disabled: set retrieval.bitswap.enabled = true and restart the daemon";

/// Remedies for errors of the daemon whose texts are those of Kubo, by a part of the text.
const REMEDIES: [(&str, &str); 3] = [
    ("must be run in online mode, try running", NO_PEERS),
    ("must be run in online mode. Try running", NO_PEERS),
    ("filestore is not enabled", "set store.filestore_root to the directory of the files"),
];

/// Returns the message of the error and its causes, without causes that the message already contains.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match text.as_str() {
            "" => text = cause,
            said if !said.contains(&cause) => text = format!("{said}: {cause}"),
            _ => {}
        }
    }
    match REMEDIES.iter().find(|(part, _)| text.contains(part)) {
        Some((_, remedy)) => format!("{text}: {remedy}"),
        None => text,
    }
}
