//! A router that knows its paths, with which the OpenAPI document is compared.

use axum::Router;
use axum::routing::MethodRouter;

use crate::state::AppState;

/// Routes and their paths.
pub(crate) struct ListedRoutes {
    pub(crate) router: Router<AppState>,
    pub(crate) paths: Vec<&'static str>,
}

impl ListedRoutes {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), paths: Vec::new() }
    }

    /// Adds a route.
    pub(crate) fn route(mut self, path: &'static str, methods: MethodRouter<AppState>) -> Self {
        self.paths.push(path);
        self.router = self.router.route(path, methods);
        self
    }
}
