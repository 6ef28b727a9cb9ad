//! Operations: their limits and their execution, for all transports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_graphql::parser::types::OperationType;
use async_graphql::{Name, Request, Response, ServerError, Value};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::auth::{Caller, Scope};
use ipfrs_middleware::{Lifecycle, MemoryPool};
use ipfrs_node::Node;
use prometheus::Registry;
use serde::Serialize;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::GraphQlConfig;
use crate::context::{Budget, RequestContext};
use crate::document::{
    VariableSizes, asks_for_schema, check_fragments, check_introspection, check_nesting, check_subscription,
    check_variables,
};
use crate::documents::Documents;
use crate::error::{LAGGED, coded, no_query, request_error, shortened, with_code};
use crate::files::Files;
use crate::limits::MAX_ERRORS;
use crate::metrics::Metrics;
use crate::persisted::PersistedQueries;
use crate::positions::Positions;
use crate::schema::{NodeSchema, schema};
use crate::selected::{Selected, mark};
use crate::variables::check_values;

/// Executes operations. Clones share the state.
#[derive(Clone)]
pub(crate) struct Executor(Arc<Shared>);

struct Shared {
    schema: NodeSchema,
    node: Node,
    memory: MemoryPool,
    config: GraphQlConfig,
    persisted: PersistedQueries,
    documents: Documents,
    positions: Positions,
    metrics: Metrics,
}

/// An operation whose document is parsed.
pub(crate) struct Operation {
    request: Request,
    pub(crate) kind: OperationType,
    context: RequestContext,
    /// Whether the time for the operation is limited: not while a file arrives.
    is_timed: bool,
    selected: Selected,
}

impl Operation {
    /// Checks that the caller may execute operations of this kind. Each mutation has a scope of its own, which its
    /// resolver checks.
    ///
    /// # Errors
    /// If the caller has no credentials, or may not read.
    pub(crate) fn check(&self, caller: &Caller) -> Result<()> {
        caller.require_no_roots()?;
        match self.kind {
            OperationType::Mutation => caller.require_any(),
            OperationType::Query | OperationType::Subscription => caller.require(Scope::Read),
        }
    }

    /// Adds the ID of the request, for the audit log.
    pub(crate) fn with_request_id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.context.request_id);
        self
    }

    /// Adds the files of a multipart request.
    pub(crate) fn with_files(mut self, files: Files) -> Self {
        self.context.files = Some(files);
        self.is_timed = self.kind != OperationType::Mutation;
        self
    }
}

/// A response as sent to the client.
#[derive(Serialize)]
pub(crate) struct Answer {
    /// `None` if the operation was not executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<ServerError>,
    /// Memory of the content, to be held until the response is sent. `None` if nothing was executed.
    #[serde(skip)]
    pub(crate) budget: Option<Arc<Budget>>,
}

impl Answer {
    /// Returns the response to a request that was not executed.
    pub(crate) fn refused(error: ServerError) -> Self {
        Self { data: None, errors: vec![error], budget: None }
    }

    /// Returns the response to an operation that took too long. A part of it may have been executed.
    fn timed_out(limit: Duration) -> Self {
        let text = format!("the operation took more than {} s (graphql.timeout_seconds): query less", limit.as_secs());
        Self::failed(&Error::new(ErrorKind::Timeout, text))
    }

    /// Returns the response to an operation whose result is not sent.
    pub(crate) fn failed(error: &Error) -> Self {
        Self { data: Some(Value::Null), errors: vec![request_error(error)], budget: None }
    }

    /// Returns the response of the library. Errors without a path arose before the execution.
    fn of(mut response: Response, selected: &Selected, executor: &Executor, budget: Option<Arc<Budget>>) -> Self {
        selected.complete(&mut response);
        let is_refused = response.data == Value::Null
            && !response.errors.is_empty()
            && response.errors.iter().all(|error| error.path.is_empty());
        let errors = response.errors.into_iter().take(MAX_ERRORS).map(|error| executor.explained(error)).collect();
        Self { data: (!is_refused).then_some(response.data), errors, budget }
    }

    /// Whether the operation was executed.
    pub(crate) fn is_executed(&self) -> bool {
        self.data.is_some()
    }

    /// Whether events of a subscription are lost, after which others follow.
    pub(crate) fn is_lagged(&self) -> bool {
        let lagged = Value::from(LAGGED);
        let code = |error: &ServerError| error.extensions.as_ref().and_then(|known| known.get("code").cloned());
        self.errors.iter().any(|error| code(error).as_ref() == Some(&lagged))
    }

    /// Whether the response has no data, for whatever reason.
    pub(crate) fn has_no_data(&self) -> bool {
        self.data.as_ref().is_none_or(|data| *data == Value::Null)
    }
}

impl Executor {
    pub(crate) fn new(
        node: &Node,
        config: &GraphQlConfig,
        memory: &MemoryPool,
        lifecycle: &Lifecycle,
        registry: &Registry,
    ) -> Result<Self> {
        Ok(Self(Arc::new(Shared {
            schema: schema(node, config, lifecycle),
            node: node.clone(),
            memory: memory.clone(),
            config: config.clone(),
            persisted: PersistedQueries::default(),
            documents: Documents::default(),
            positions: Positions::of_schema()?,
            metrics: Metrics::register(registry)?,
        })))
    }

    /// Returns the settings.
    pub(crate) fn config(&self) -> &GraphQlConfig {
        &self.0.config
    }

    /// Returns the memory for request bodies.
    pub(crate) fn memory(&self) -> &MemoryPool {
        &self.0.memory
    }

    /// Parses the document of a request.
    pub(crate) fn parse(&self, request: Request, caller: &Caller) -> Result<Operation, ServerError> {
        let parsed = self.parsed(request, caller);
        if parsed.is_err() {
            self.0.metrics.ended(OperationType::Query, false);
        }
        parsed
    }

    fn parsed(&self, request: Request, caller: &Caller) -> Result<Operation, ServerError> {
        let mut request = self.0.persisted.complete(request)?;
        let most = self.0.config.max_query_bytes;
        if request.query.len() > most {
            return Err(request_error(&Error::too_large(format!(
                "the document has {} bytes, more than {most} (graphql.max_query_bytes): use variables, or several requests",
                request.query.len()
            ))));
        }
        if request.query.trim().is_empty() {
            return Err(request_error(&no_query()));
        }
        let name = request.operation_name.clone();
        if let Some(known) = self.0.documents.get(&request.query) {
            request.set_parsed_query(known.as_ref().clone());
        } else {
            self.check(&mut request)?;
        }
        let mut variables = std::mem::take(&mut request.variables);
        let document = request.parsed_query().map_err(|error| self.explained(error))?;
        check_variables(document, &VariableSizes::of(&variables), self.0.config.max_complexity)
            .map_err(|e| request_error(&e))?;
        let is_meant = |given: Option<&Name>| match &name {
            Some(name) => given.is_some_and(|given| given.as_str() == name),
            None => true,
        };
        // A name that does not exist, or a missing one, is an error of the execution.
        let operation = document.operations.iter().find(|(given, _)| is_meant(*given));
        let kind = operation.map_or(OperationType::Query, |(_, operation)| operation.node.ty);
        if let Some((_, operation)) = operation {
            check_values(&operation.node, &variables).map_err(|e| request_error(&e))?;
            self.0.positions.complete(document, &operation.node, &mut variables);
        }
        if let Some((_, operation)) = operation.filter(|_| kind == OperationType::Subscription) {
            check_subscription(document, &operation.node).map_err(|e| request_error(&e))?;
        }
        let selected = operation.map(|(_, operation)| Selected::of(document, &operation.node, &variables));
        let selected = selected.unwrap_or_default();
        request.variables = variables;
        let context = RequestContext::new(&self.0.node, &self.0.memory, &self.0.config, caller.clone());
        Ok(Operation { request, kind, context, is_timed: true, selected })
    }

    /// Parses and checks a new document.
    fn check(&self, request: &mut Request) -> Result<(), ServerError> {
        check_nesting(&request.query).map_err(|e| request_error(&e))?;
        let document = request.parsed_query().map_err(|error| self.explained(error))?;
        check_fragments(document, self.0.config.max_complexity).map_err(|e| request_error(&e))?;
        if !self.0.config.introspection && asks_for_schema(document) {
            let why = "the schema is not served (graphql.introspection = false)";
            return Err(request_error(&Error::new(ErrorKind::Forbidden, why)));
        }
        check_introspection(document).map_err(|e| request_error(&e))?;
        self.0.positions.check(document).map_err(|e| request_error(&e))?;
        let mut document = document.clone();
        mark(&mut document);
        self.0.documents.insert(&request.query, document.clone());
        request.set_parsed_query(document);
        Ok(())
    }

    /// Gives an error of the library a code, and names the limit that it is about.
    fn explained(&self, error: ServerError) -> ServerError {
        let config = &self.0.config;
        let error = shortened(coded(error));
        let message = match error.message.as_str() {
            "Query is too complex." => {
                let most = config.max_complexity;
                format!("the operation costs more than {most} (graphql.max_complexity): query smaller pages")
            }
            "Query is nested too deep." => {
                format!("the fields are nested more than {} levels deep (graphql.max_depth)", config.max_depth)
            }
            _ => return error,
        };
        with_code(ServerError { message, ..error }, ErrorKind::TooLarge.code())
    }

    /// Executes a query or a mutation.
    pub(crate) async fn execute(&self, operation: Operation) -> Answer {
        let Operation { request, kind, context, is_timed, selected } = operation;
        let (start, budget) = (Instant::now(), Arc::clone(&context.budget));
        let executing = self.0.schema.execute(request.data(context));
        let limit = self.0.config.timeout();
        let answer = if is_timed {
            match timeout(limit, executing).await {
                Ok(response) => Answer::of(response, &selected, self, Some(budget)),
                Err(_) => Answer::timed_out(limit),
            }
        } else {
            Answer::of(executing.await, &selected, self, Some(budget))
        };
        self.0.metrics.took(kind, start);
        self.0.metrics.ended(kind, answer.errors.is_empty());
        answer
    }

    /// Executes any operation as a stream of responses, of which a query or a mutation has one.
    pub(crate) fn stream(&self, operation: Operation) -> BoxStream<'static, Answer> {
        let executor = self.clone();
        if operation.kind != OperationType::Subscription {
            return futures::stream::once(async move { executor.execute(operation).await }).boxed();
        }
        let open = self.0.metrics.subscription();
        let mut is_first = true;
        let selected = operation.selected;
        let responses = self.0.schema.execute_stream(operation.request.data(operation.context));
        let answers = responses.map(move |response| {
            let _until_the_end = &open;
            if std::mem::replace(&mut is_first, false) {
                executor.0.metrics.ended(OperationType::Subscription, response.is_ok());
            }
            Answer::of(response, &selected, &executor, None)
        });
        fair(answers).boxed()
    }
}

/// Lets other tasks run before each item. Thousands of events may be available at once, so that a client with many
/// subscriptions would keep the worker from all other clients.
fn fair<S: Stream>(items: S) -> impl Stream<Item = S::Item> {
    items.then(|item| async move {
        yield_now().await;
        item
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures::{poll, stream};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_before_each_item_of_a_stream() {
        let mut items = pin!(fair(stream::iter(0..3)));
        for item in 0..3 {
            assert!(poll!(items.next()).is_pending());
            assert_eq!(poll!(items.next()), Poll::Ready(Some(item)));
        }
        assert_eq!(poll!(items.next()), Poll::Ready(None));
    }
}
