//! `grpc.health.v1.Health` (<https://grpc.io/docs/guides/health-checking/>): SERVING while the daemon accepts
//! requests.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::Lifecycle;
use ipfrs_node::Node;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::error;

/// Maximum delay until watchers are notified of a change other than draining.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Readiness of the daemon, which applies to each of its services.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) node: Node,
    pub(crate) lifecycle: Lifecycle,
    /// Names of the services.
    pub(crate) services: &'static [&'static str],
}

impl Readiness {
    async fn status(&self, service: &str) -> ServingStatus {
        if !service.is_empty() && !self.services.contains(&service) {
            ServingStatus::ServiceUnknown
        } else if self.lifecycle.is_ready() && self.node.check().await.is_ok() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        }
    }
}

fn unknown(service: &str) -> Status {
    error::status(Error::new(
        ErrorKind::NotFound,
        format!("there is no service {service:?}: use reflection to list the services"),
    ))
}

fn health_response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[async_trait::async_trait]
impl Health for Readiness {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.status(&service).await {
            ServingStatus::ServiceUnknown => Err(unknown(&service)),
            status => Ok(Response::new(health_response(status))),
        }
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    /// Sends the status and each change of it. When the daemon drains, NOT_SERVING is the last message.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (readiness, service) = (self.clone(), request.into_inner().service);
        let changes = stream::unfold(None, move |last_sent| {
            let (readiness, service) = (readiness.clone(), service.clone());
            async move {
                let mut status = readiness.status(&service).await;
                while last_sent == Some(status) {
                    if readiness.lifecycle.is_draining() {
                        return None;
                    }
                    // The status is checked again after the interval, or as soon as draining begins.
                    let _ = tokio::time::timeout(WATCH_INTERVAL, readiness.lifecycle.drain_begun()).await;
                    status = readiness.status(&service).await;
                }
                Some((Ok(health_response(status)), Some(status)))
            }
        });
        Ok(Response::new(changes.boxed()))
    }
}
