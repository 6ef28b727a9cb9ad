//! `denylist check`.

use anyhow::{Result, bail};
use ipfrs_interface::{DenylistReport, inspect_denylist};
use serde_json::{Value, json};

use crate::args::DenylistCommand;
use crate::output::Output;

pub(super) fn run(command: &DenylistCommand, out: &mut Output) -> Result<()> {
    let DenylistCommand::Check { files } = command;
    let mut malformed = 0;
    for file in files {
        let report = inspect_denylist(file)?;
        malformed += report.malformed;
        if out.is_json() {
            out.object(&as_json(file.display().to_string(), &report))?;
            continue;
        }
        for (line, why) in &report.problems {
            out.line(&format!("{}, line {line}: {why}", file.display()))?;
        }
        let DenylistReport { rules, malformed, .. } = report;
        let name = if report.name.is_empty() { String::new() } else { format!(" ({})", report.name) };
        out.line(&format!("{}{name}: {rules} rules, {malformed} malformed lines", file.display()))?;
    }
    match malformed {
        0 => Ok(()),
        lines => bail!("malformed lines: {lines}. A gateway ignores them"),
    }
}

fn as_json(file: String, report: &DenylistReport) -> Value {
    let problems = report.problems.iter();
    let problems: Vec<_> = problems.map(|(line, why)| json!({ "line": line, "error": why.to_string() })).collect();
    json!({
        "file": file,
        "name": report.name,
        "rules": report.rules,
        "malformed": report.malformed,
        "problems": problems,
    })
}
