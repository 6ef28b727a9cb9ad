//! Methods that are called directly by their path and respond with [zero-copy](crate::zero_copy) messages. For a small
//! response, routers and generated services would take longer than all other work.

use std::collections::HashMap;
use std::fmt;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use prost::Message;
use tonic::Status;
use tonic::codec::Streaming;
use tonic_prost::ProstDecoder;

use crate::audit_target::AuditTarget;
use crate::zero_copy::{self, ZeroCopyEncoder};

/// Handler of a method: takes a request and returns the response.
pub(crate) type Answer = Box<dyn Fn(Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// The handlers, by path.
#[derive(Default)]
pub(crate) struct Shortcuts(HashMap<&'static str, Answer>);

impl fmt::Debug for Shortcuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Shortcuts {
    /// Adds a method that takes one message of at most `most` bytes. `answer` returns the messages of the response.
    pub(crate) fn add<I, M, F>(
        &mut self,
        path: &'static str,
        most: usize,
        answer: impl Fn(I) -> F + Clone + Send + Sync + 'static,
    ) where
        I: Message + Default + 'static,
        M: ZeroCopyEncoder + 'static,
        F: Future<Output = Result<BoxStream<'static, Result<M, Status>>, Status>> + Send + 'static,
    {
        let method = move |request: Request| {
            let answer = answer.clone();
            async move {
                let messages = async { answer(one_message::<I>(request.into_body(), most).await?).await };
                messages.await.map_or_else(|status| status.into_http(), zero_copy::response)
            }
            .boxed()
        };
        self.0.insert(path, Box::new(method));
    }

    /// Adds a method that takes a stream of messages of at most `most` bytes each, and what the audit log says of it.
    pub(crate) fn add_stream<I, M, F>(
        &mut self,
        path: &'static str,
        most: usize,
        answer: impl Fn(tonic::Request<Streaming<I>>) -> F + Clone + Send + Sync + 'static,
    ) where
        I: Message + Default + 'static,
        M: ZeroCopyEncoder + 'static,
        F: Future<Output = Result<BoxStream<'static, Result<M, Status>>, Status>> + Send + 'static,
    {
        let method = move |request: Request| {
            let (answer, (head, body)) = (answer.clone(), request.into_parts());
            let messages = Streaming::new_request(ProstDecoder::<I>::default(), body, None, Some(most));
            let mut requests = tonic::Request::new(messages);
            if let Some(audited) = head.extensions.get::<AuditTarget>() {
                requests.extensions_mut().insert(audited.clone());
            }
            async move { answer(requests).await.map_or_else(|status| status.into_http(), zero_copy::response) }.boxed()
        };
        self.0.insert(path, Box::new(method));
    }

    /// Returns the handler for this path, if there is one.
    pub(crate) fn to(&self, path: &str) -> Option<&Answer> {
        self.0.get(path)
    }
}

/// Reads the message of a request. [`OneMessage`](crate::inbound::OneMessage) ensures that it is the only one.
async fn one_message<I: Message + Default + 'static>(body: Body, most: usize) -> Result<I, Status> {
    let mut messages = Streaming::new_request(ProstDecoder::<I>::default(), body, None, Some(most));
    messages.message().await?.ok_or_else(|| Status::internal("the request ended within its message"))
}
