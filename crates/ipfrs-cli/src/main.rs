//! `ipfrs-cli`: run the gateway, add and fetch content.

mod answer;
mod api;
mod args;
mod commands;
mod load;
mod multipart;
mod output;
mod progress;
mod runtime;
mod session;
mod uri;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::output::OutputClosed;
use crate::runtime::Interrupted;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What shells give a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Exit codes: 0, 1 the command failed, 2 it was not typed right (clap's own), 130 it was interrupted.
fn main() -> ExitCode {
    match commands::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", describe(&error));
            if error.is::<Interrupted>() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE }
        }
    }
}

/// The message and its causes, without those that the message has said already.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match text.as_str() {
            "" => text = cause,
            said if !said.contains(&cause) => text = format!("{said}: {cause}"),
            _ => {}
        }
    }
    text
}
