//! Commands that mend what a check finds.

use std::borrow::Cow;
use std::path::Path;

use crate::args::Globals;
use crate::session;

/// Commands for the repo and the configuration that are checked.
#[cfg_attr(test, derive(Default))]
pub(super) struct Remedies {
    /// This program with the flags that name both.
    program: String,
}

impl Remedies {
    pub(super) fn new(globals: &Globals) -> Self {
        let mut program = "ipfrs-cli".to_owned();
        for (flag, path) in [("--config", &globals.config), ("--repo", &globals.repo)] {
            if let Some(path) = path {
                program.push_str(&format!(" {flag} {}", quoted_path(path)));
            }
        }
        Self { program }
    }

    /// Returns a command of this program.
    pub(super) fn command(&self, arguments: &str) -> String {
        format!("{} {arguments}", self.program)
    }

    /// Returns the command that sets a key in the configuration file.
    pub(super) fn set(&self, key: &str, value: &str) -> String {
        self.command(&format!("config set {key} {}", quoted(value)))
    }

    /// Returns the command that opens the configuration file and checks it afterwards, or lists the variables of the
    /// environment, which contain the settings if there is no file.
    pub(super) fn edit(&self, globals: &Globals) -> String {
        match session::config_file(globals) {
            Ok(Some(file)) => {
                format!("\"${{EDITOR:-vi}}\" {} && {}", quoted_path(&file), self.command("config check"))
            }
            Ok(None) | Err(_) => "env | grep '^IPFRS_'".to_owned(),
        }
    }
}

/// Returns a path as one word of a shell.
pub(super) fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// Returns a text as one word of a shell.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:=@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_commands_are_quoted_if_a_shell_would_read_them_otherwise() {
        for (text, word) in [
            ("/var/lib/ipfrs-1.0", "/var/lib/ipfrs-1.0"),
            ("a b", "'a b'"),
            ("$HOME", "'$HOME'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("[]", "'[]'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }
}
