//! Access rules: the requirements of routes.

use http::Method;
use ipfrs_middleware::auth::{Need, Scope};

/// Requirements of a route, by the method of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// Requirement of GET and HEAD.
    pub(crate) read: Need,
    /// Requirement of all other methods except OPTIONS.
    pub(crate) write: Need,
}

impl Access {
    /// Nothing: health, pages of the console, descriptions.
    pub(crate) const OPEN: Self = Self::both(Need::Nothing);
    /// Content of the gateway.
    pub(crate) const CONTENT: Self = Self::both(Need::Content);
    /// Information about content: records, providers.
    pub(crate) const RECORDS: Self = Self::both(Need::Records);
    /// Content at a path whose root the handler checks.
    pub(crate) const PATH: Self = Self::both(Need::Path);
    /// Decided by the front-end once it has read the request.
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
