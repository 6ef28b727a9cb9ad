//! Scopes, and what routes need.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Something that a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read content, pins and the state of the daemon.
    Read,
    /// Add and remove blocks and files, change mutable files.
    Write,
    /// Change pins.
    Pin,
    /// Use and change keys of names, publish names, store records.
    Names,
    /// Everything: also gc, peers, logs, API keys, and the end of the daemon.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Pin, Self::Names, Self::Admin];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Pin => "pin",
            Self::Names => "names",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| Error::invalid(format!("no scope {text:?}: there are read, write, pin, names and admin")))
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// Returns whether the set allows `scope`: it contains it, or [`Scope::Admin`].
    #[must_use]
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & (bit(scope) | bit(Scope::Admin)) != 0
    }

    /// Returns the scopes in the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & bit(*scope) != 0)
    }
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | bit(scope)))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::name).collect();
        f.write_str(if names.is_empty() { "no scope" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

/// Requirement of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: health, pages of the console, descriptions of the API.
    Nothing,
    /// Nothing, or as [`Need::Path`] if the gateway is private.
    Content,
    /// The scope `read`. The front-end calls [`Caller::require_root`](super::Caller::require_root) once it has parsed
    /// the path; a caller who is restricted to roots may send no other requests.
    Path,
    /// Nothing, or the scope `read` if the gateway is private: what the node knows about content.
    Records,
    /// A scope.
    Scope(Scope),
    /// A scope, for an RPC command. The front-end calls
    /// [`Caller::require_command`](super::Caller::require_command), because some callers have commands and no scopes.
    Command(Scope),
    /// Valid credentials, whatever their scopes.
    Any,
    /// Decided by the front-end once it has read the request, with [`Caller::require`](super::Caller::require) and
    /// [`Caller::require_no_roots`](super::Caller::require_no_roots).
    Later,
}

impl Need {
    /// Returns whether requests with this requirement change something, and belong into the audit log.
    #[must_use]
    pub fn is_change(self) -> bool {
        match self {
            Self::Scope(scope) | Self::Command(scope) => scope != Scope::Read,
            Self::Nothing | Self::Content | Self::Path | Self::Records | Self::Any | Self::Later => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_allows_everything_and_others_only_themselves() {
        for scope in Scope::ALL {
            let alone = Scopes::from_iter([scope]);
            for other in Scope::ALL {
                assert_eq!(alone.allow(other), scope == other || scope == Scope::Admin, "{scope} {other}");
            }
            assert!(!Scopes::default().allow(scope));
            assert_eq!(scope.name().parse::<Scope>().unwrap(), scope);
        }
        assert_eq!(Scopes::from_iter([Scope::Pin, Scope::Read]).to_string(), "read, pin");
        assert!("root".parse::<Scope>().unwrap_err().to_string().contains("names"));
    }
}
