//! A router that knows its paths, and what requests to them need.

use axum::Router;
use axum::routing::MethodRouter;

use crate::access_rule::Access;
use crate::state::AppState;

/// Routes, their paths and access rules. There is no way to add a route without a rule.
pub(crate) struct ListedRoutes {
    pub(crate) router: Router<AppState>,
    pub(crate) rules: Vec<(String, Access)>,
}

impl ListedRoutes {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), rules: Vec::new() }
    }

    /// Adds a route.
    pub(crate) fn route(mut self, path: &'static str, access: Access, methods: MethodRouter<AppState>) -> Self {
        self.rules.push((path.to_owned(), access));
        self.router = self.router.route(path, methods);
        self
    }

    /// Returns the same with the rules of all paths below `prefix`.
    pub(crate) fn below(mut self, prefix: &str) -> Self {
        self.rules.iter_mut().for_each(|(path, _)| path.insert_str(0, prefix));
        self
    }
}
