//! Access rules: what requests to a route need.

use http::Method;
use ipfrs_middleware::auth::{Need, Scope};

/// What requests to a route need, by their method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// What GET and HEAD need.
    pub(crate) read: Need,
    /// What all other methods except OPTIONS need.
    pub(crate) write: Need,
}

impl Access {
    /// Nothing: health, pages of the console, descriptions.
    pub(crate) const OPEN: Self = Self::both(Need::Nothing);
    /// Content of the gateway.
    pub(crate) const CONTENT: Self = Self::both(Need::Content);
    /// What the node knows about content: records, providers.
    pub(crate) const RECORDS: Self = Self::both(Need::Records);
    /// Content at a path whose root the handler checks.
    pub(crate) const PATH: Self = Self::both(Need::Path);
    /// What the front-end decides once it has read the request.
    pub(crate) const LATER: Self = Self::both(Need::Later);
    pub(crate) const READ: Self = Self::scope(Scope::Read);
    pub(crate) const WRITE: Self = Self::scope(Scope::Write);
    pub(crate) const ADMIN: Self = Self::scope(Scope::Admin);

    /// A scope for all methods.
    pub(crate) const fn scope(scope: Scope) -> Self {
        Self::both(Need::Scope(scope))
    }

    /// The same for all methods.
    pub(crate) const fn both(need: Need) -> Self {
        Self { read: need, write: need }
    }

    /// Something else for methods that change something.
    pub(crate) const fn with_write(self, write: Need) -> Self {
        Self { write, ..self }
    }

    /// Returns what a request with this method needs. OPTIONS reveals only the methods of a route.
    pub(crate) fn of(self, method: &Method) -> Need {
        match *method {
            Method::OPTIONS => Need::Nothing,
            Method::GET | Method::HEAD => self.read,
            _ => self.write,
        }
    }
}
