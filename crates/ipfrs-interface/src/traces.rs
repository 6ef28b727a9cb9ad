//! Which requests are traced, and their spans.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;

use axum::http::{Request, StatusCode};
use ipfrs_middleware::TraceContext;
use ipfrs_node::TRACE_TARGET;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Name of the span of a request, which has the spans of its work below it.
pub(crate) const REQUEST: &str = "request";

/// `log.trace_one_in`, once traces are exported.
static ONE_IN: OnceLock<u64> = OnceLock::new();

/// Traces requests whose callers ask for it, and of the others one in `one_in` on average; none of them if it is 0.
pub(crate) fn enable(one_in: u64) {
    let _ = ONE_IN.set(one_in);
    ipfrs_node::propagate_traces(|| context_of(&Span::current()).map(|context| context.to_string()));
}

/// Decides by chance whether to trace a request whose caller has not decided.
pub(crate) fn is_chosen() -> bool {
    match ONE_IN.get() {
        None | Some(0) => false,
        Some(one_in) => random().is_multiple_of(*one_in),
    }
}

/// Returns the span of a request from `client`, or none if it is not traced. `is_chosen` applies if its caller has not
/// decided.
pub(crate) fn span_of<B>(
    request: &Request<B>,
    client: IpAddr,
    caller: Option<TraceContext>,
    is_chosen: impl FnOnce() -> bool,
) -> Span {
    if ONE_IN.get().is_none() || !caller.map_or_else(is_chosen, |caller| caller.is_sampled) {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: TRACE_TARGET,
        parent: None,
        REQUEST,
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = %request.method(),
        http.route = field::Empty,
        http.response.status_code = field::Empty,
        http.response.body.size = field::Empty,
        url.path = request.uri().path(),
        client.address = %client,
    );
    if let Some(caller) = caller {
        let state = request.headers().get("tracestate").and_then(|state| state.to_str().ok()?.parse().ok());
        let remote = SpanContext::new(
            TraceId::from_bytes(caller.trace_id),
            SpanId::from_bytes(caller.span_id),
            TraceFlags::SAMPLED,
            true,
            state.unwrap_or(TraceState::NONE),
        );
        // It fails only for a span that has begun.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }
    span
}

/// Returns the position of a span in its trace, if it is recorded.
pub(crate) fn context_of(span: &Span) -> Option<TraceContext> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    let (trace_id, span_id) = (context.trace_id().to_bytes(), context.span_id().to_bytes());
    context.is_valid().then(|| TraceContext { trace_id, span_id, is_sampled: context.is_sampled() })
}

/// Adds the result of a request to its span.
pub(crate) fn finish(span: &Span, method: &str, route: &str, status: StatusCode, sent_bytes: u64) {
    if span.is_disabled() {
        return;
    }
    span.context().span().update_name(format!("{method} {route}"));
    span.record("http.route", route);
    // Unsigned numbers would be exported as text.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    span.record("http.response.body.size", i64::try_from(sent_bytes).unwrap_or(i64::MAX));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Returns a random number (xorshift64*), which needs not be secret.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }
    STATE.with(|state| {
        let mut number = state.get();
        number ^= number >> 12;
        number ^= number << 25;
        number ^= number >> 27;
        state.set(number);
        number.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    })
}
