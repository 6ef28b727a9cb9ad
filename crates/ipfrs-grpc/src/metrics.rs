//! The gRPC metric families.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ipfrs_core::{Error, Result};
use ipfrs_middleware::{Route, registered};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::Code;
use tonic_health::pb::health_server;

/// Service and method of calls to unknown methods.
const UNKNOWN: &str = "unknown";

/// The metric families, by the path of each method. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct GrpcMetrics {
    methods: Arc<HashMap<String, Arc<Method>>>,
    unknown: Arc<Method>,
    /// Number of running calls.
    pub(crate) calls_active: IntGauge,
}

/// The metrics of one method.
#[derive(Debug)]
pub(crate) struct Method {
    service: String,
    method: String,
    /// Whether it takes exactly one message.
    pub(crate) takes_one: bool,
    /// Whether its stream has no end, such as `Watch` of the health service.
    pub(crate) is_watch: bool,
    /// Whether the request stream fails if the client pauses. Streaming methods of ipfrs have their own limits.
    pub(crate) ends_when_idle: bool,
    requests: IntCounterVec,
    /// The counter in `requests` for the code OK.
    ok: IntCounter,
    duration: Histogram,
}

impl GrpcMetrics {
    /// Creates the families for the methods in `descriptors`, each an encoded `FileDescriptorSet`, and registers
    /// them.
    ///
    /// # Errors
    /// One of the names is already registered in `registry`.
    pub(crate) fn register(registry: &Registry, descriptors: &[&[u8]]) -> Result<Self> {
        let seconds = vec![1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let labels = ["service", "method", "code"];
        let help = "Completed calls, by service, method and code";
        let requests = registered(registry, IntCounterVec::new(Opts::new("ipfrs_grpc_requests_total", help), &labels))?;
        let help = "Time from a call's head to the end of its response";
        let options = HistogramOpts::new("ipfrs_grpc_request_duration_seconds", help).buckets(seconds);
        let durations = registered(registry, HistogramVec::new(options, &labels[..2]))?;
        let help = "Active calls on the gRPC listener, until the end of their responses";
        let calls_active = registered(registry, IntGauge::new("ipfrs_grpc_requests_active", help))?;
        let of = |service: &str, method: &str, takes_one: bool, answers_many: bool| {
            // Created now, so that the family exists before the first call.
            let ok = requests.with_label_values(&[service, method, code_name(Code::Ok)]);
            Arc::new(Method {
                service: service.to_owned(),
                method: method.to_owned(),
                takes_one,
                is_watch: takes_one && answers_many && service == health_server::SERVICE_NAME,
                ends_when_idle: takes_one || !service.starts_with("ipfrs."),
                requests: requests.clone(),
                ok,
                duration: durations.with_label_values(&[service, method]),
            })
        };
        let mut methods = HashMap::new();
        for bytes in descriptors {
            let files = FileDescriptorSet::decode(*bytes)
                .map_err(|e| Error::internal("the descriptors of gRPC cannot be read").with_source(e))?;
            for file in files.file {
                for service in &file.service {
                    let name = format!("{}.{}", file.package(), service.name());
                    for method in &service.method {
                        methods.insert(
                            format!("/{name}/{}", method.name()),
                            of(&name, method.name(), !method.client_streaming(), method.server_streaming()),
                        );
                    }
                }
            }
        }
        Ok(Self { methods: Arc::new(methods), unknown: of(UNKNOWN, UNKNOWN, true, false), calls_active })
    }

    /// Returns the metrics of the method with this path: `/ipfrs.block.v1.BlockService/GetBlock`.
    pub(crate) fn of(&self, path: &str) -> Arc<Method> {
        self.methods.get(path).unwrap_or(&self.unknown).clone()
    }
}

impl Method {
    /// Returns the name of the method for logs and traces.
    pub(crate) fn route(&self) -> Route {
        Route(format!("{}/{}", self.service, self.method))
    }

    /// Counts a call that ended.
    pub(crate) fn ended(&self, code: Code, start: Instant) {
        match code {
            Code::Ok => self.ok.inc(),
            other => self.requests.with_label_values(&[&self.service, &self.method, code_name(other)]).inc(),
        }
        self.duration.observe(start.elapsed().as_secs_f64());
    }
}

/// Returns the name of a code in the gRPC specification.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
