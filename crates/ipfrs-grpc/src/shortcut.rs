//! A generated service of which some methods answer with [spliced](crate::spliced) messages.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Request, Response};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::server::NamedService;
use tonic_prost::ProstDecoder;
use tower::Service;

use crate::spliced::{self, Spliced};

/// How a method answers.
type Answer = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A service with its shortcuts.
#[derive(Clone)]
pub(crate) struct Shortcuts<S> {
    service: S,
    /// By path.
    methods: HashMap<&'static str, Answer>,
}

impl<S> fmt::Debug for Shortcuts<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shortcuts").field("methods", &self.methods.keys()).finish_non_exhaustive()
    }
}

impl<S> Shortcuts<S> {
    pub(crate) fn new(service: S) -> Self {
        Self { service, methods: HashMap::new() }
    }

    /// Adds a method that takes one message of at most `most` bytes: `answer` gives what it answers with.
    pub(crate) fn with<I, M, F>(
        mut self,
        path: &'static str,
        most: usize,
        answer: impl Fn(I) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        I: Message + Default + 'static,
        M: Spliced + 'static,
        F: Future<Output = Result<BoxStream<'static, Result<M, Status>>, Status>> + Send + 'static,
    {
        let method = move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                let messages = async {
                    let message = one_message::<I>(request.into_body(), most).await?;
                    answer(message).await
                };
                messages.await.map_or_else(|status| status.into_http(), spliced::response)
            }
            .boxed()
        };
        self.methods.insert(path, Arc::new(method));
        self
    }
}

/// The only message of a request.
async fn one_message<I: Message + Default + 'static>(body: Body, most: usize) -> Result<I, Status> {
    let mut messages = Streaming::new_request(ProstDecoder::<I>::default(), body, None, Some(most));
    let missing = || Status::internal("the request has no message: this method takes one");
    let message = messages.message().await?.ok_or_else(missing)?;
    match messages.message().await? {
        Some(_) => Err(Status::internal("the request has several messages: this method takes one")),
        None => Ok(message),
    }
}

impl<S: NamedService> NamedService for Shortcuts<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Shortcuts<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.methods.get(request.uri().path()) {
            Some(answer) => answer(request).map(Ok).boxed(),
            None => self.service.call(request).boxed(),
        }
    }
}
