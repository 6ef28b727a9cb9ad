//! `completions`: scripts that complete commands and options in a shell.

use anyhow::Result;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::Output;

const PROGRAM: &str = "ipfrs-cli";
/// Number of names of a command up to which `clap_complete` writes its options for fish.
const COMPLETED_LEVELS: usize = 2;

pub(super) fn run(shell: Shell, out: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    if shell == Shell::Fish {
        let (command, mut lines) = (Cli::command(), String::new());
        add_deep_options(&mut Vec::new(), &command, &mut lines);
        script.extend_from_slice(lines.as_bytes());
    }
    out.bytes(&script)
}

/// Adds the options of commands with three names or more, such as `auth key create`, which the generator for fish
/// leaves out. Global options are in the lines of the commands above.
fn add_deep_options<'a>(names: &mut Vec<&'a str>, command: &'a Command, lines: &mut String) {
    if let [first, rest @ ..] = &names[..]
        && names.len() > COMPLETED_LEVELS
    {
        let mut condition = format!("__fish_{}_using_subcommand {first}", PROGRAM.replace('-', "_"));
        for name in rest {
            condition += &format!("; and __fish_seen_subcommand_from {name}");
        }
        let own = |option: &&Arg| !option.is_positional() && !option.is_global_set() && !option.is_hide_set();
        for option in command.get_arguments().filter(own) {
            *lines += &format!("complete -c {PROGRAM} -n \"{condition}\"{}\n", described(option));
        }
    }
    for below in command.get_subcommands() {
        names.push(below.get_name());
        add_deep_options(names, below, lines);
        names.pop();
    }
}

/// Returns the arguments of fish's `complete` for an option.
fn described(option: &Arg) -> String {
    let mut text = String::new();
    if let Some(short) = option.get_short() {
        text += &format!(" -s {short}");
    }
    if let Some(long) = option.get_long() {
        text += &format!(" -l {long}");
    }
    if let Some(help) = option.get_help() {
        let help = help.to_string().replace('\n', " ").replace('\\', "\\\\").replace('\'', "\\'");
        text += &format!(" -d '{help}'");
    }
    if !option.get_action().takes_values() {
        return text;
    }
    let values: Vec<_> = option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    text += match option.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath => " -r -F",
        _ => " -r -f",
    };
    if !values.is_empty() {
        text += &format!(" -a \"{}\"", values.join(" "));
    }
    text
}
