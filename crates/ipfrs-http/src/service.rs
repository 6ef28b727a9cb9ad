//! The front-end as a connection calls it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use http::Request;
use pin_project_lite::pin_project;
use tower::Service as _;

use crate::router::AppState;

/// All routes, with a short way for answers that are ready. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) state: AppState,
    pub(crate) router: Router,
}

impl Service {
    /// Answers a request.
    pub fn answer<B>(&self, request: Request<B>) -> Answering
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let step = match self.state.ready.get(&self.state, &request) {
            Some(response) => Step::Ready { response: Some(response) },
            None => Step::Routed { inner: self.router.clone().call(request) },
        };
        Answering { step }
    }

    /// The routes by themselves.
    pub fn router(&self) -> Router {
        self.router.clone()
    }
}

pin_project! {
    #[project = Projected]
    enum Step {
        // It was ready.
        Ready { response: Option<Response> },
        // The router makes it.
        Routed { #[pin] inner: RouteFuture<Infallible> },
    }
}

pin_project! {
    /// An answer on its way.
    pub struct Answering {
        #[pin]
        step: Step,
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().step.project() {
            Projected::Ready { response } => Poll::Ready(Ok(response.take().unwrap_or_default())),
            Projected::Routed { inner } => inner.poll(cx),
        }
    }
}
