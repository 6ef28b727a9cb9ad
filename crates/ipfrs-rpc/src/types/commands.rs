//! `commands`, `version/deps` and `diag/cmds`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Response of `commands`: a command with the commands below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct CommandTree {
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub subcommands: Vec<CommandTree>,
    pub options: Vec<CommandOption>,
}

/// An option of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct CommandOption {
    pub names: Vec<String>,
}

/// A line of `version/deps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Dependency {
    pub path: String,
    pub version: String,
    /// Always empty. Replaced packages have their own path.
    pub replaced_by: String,
    /// Hash function and digest of the source archive in base16; empty for packages of this repository.
    pub sum: String,
}

/// A command that runs or has ended, in the response of `diag/cmds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct LoggedCommand {
    pub start_time: String,
    /// The year 1 while the command runs.
    pub end_time: String,
    pub active: bool,
    pub command: String,
    pub options: BTreeMap<String, String>,
    pub args: Vec<String>,
    #[serde(rename = "ID")]
    pub id: u64,
}
