//! The `[log]` section: log, access log and traces of the process.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::TRACE_TARGET;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde::Deserialize;
use tokio::runtime::Handle;
use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt, LevelFilter, dynamic_filter_fn, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, reload};

use crate::access_log::AccessLog;
use crate::trace_export::LoggedExporter;
use crate::{log_levels, traces};

/// Library of WebSockets, which logs each message at the level trace. The first message of a client may have its token.
const WEBSOCKET_TARGET: &str = "tungstenite";

/// Maximum number of lines that wait to be written.
const MAX_WAITING_LINES: usize = 16 * 1024;
/// Bytes that are written together.
const WRITE_BYTES: usize = 64 * 1024;
/// How long the last traces may take to reach the collector.
const LAST_EXPORT: Duration = Duration::from_secs(3);

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// `[log]`: log output on standard error, and traces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `"text"` or `"json"`.
    pub format: LogFormat,
    /// A level (`"info"`), or directives per module as in `RUST_LOG` (`"info,ipfrs_http=debug"`).
    pub level: String,
    /// Whether each request is logged in a line.
    pub access: bool,
    /// URL of a collector that accepts traces by OTLP over gRPC; empty for no traces.
    pub otlp_endpoint: String,
    /// Share of the traced requests among those whose callers have not decided: one in this number; 0 for none.
    pub trace_one_in: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".to_owned(),
            access: false,
            otlp_endpoint: String::new(),
            trace_one_in: 100,
        }
    }
}

impl LogConfig {
    /// Checks that level and endpoint can be parsed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and what is
    /// accepted.
    pub fn validate(&self) -> Result<()> {
        // A word that is no level would be taken for a module, of which alone everything would be logged.
        let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
        let is_refused = |word: &str| match word.rsplit_once('=') {
            Some((module, level)) => is_level(module) || level.is_empty(),
            None => !word.contains(['[', ':', '_']) && !is_level(word),
        };
        let refused = self.level.split(',').map(str::trim).find(|word| is_refused(word));
        let checked = match refused {
            Some(word) => Err(format!("{word:?} is neither a level nor a module with its level")),
            None => EnvFilter::try_new(&self.level).map(drop).map_err(|e| e.to_string()),
        };
        checked.map_err(|e| {
            Error::invalid(format!(
                "log.level = {:?}: {e}; accepted values are error, warn, info, debug, trace, off, or directives such as \
                 \"info,ipfrs_http=debug\"",
                self.level
            ))
        })?;
        let endpoint = self.otlp_endpoint.parse::<axum::http::Uri>().ok();
        let is_url = endpoint.is_some_and(|url| matches!(url.scheme_str(), Some("http" | "https")));
        if is_url || self.otlp_endpoint.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "log.otlp_endpoint = {:?} is not a URL: write the gRPC address of a collector, such as \
             \"http://127.0.0.1:4317\", or leave it empty",
            self.otlp_endpoint
        )))
    }

    /// Starts the log of a command on standard error: warnings and errors only.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_quiet(&self) -> Result<()> {
        let quiet = Self { level: "warn".to_owned(), format: self.format, ..Self::default() };
        let log = quiet.lines(io::stderr).with_filter(quiet.filter()?);
        started(tracing_subscriber::registry().with(log).try_init())
    }

    /// Starts the log on standard error, and the export of traces, which needs the current Tokio runtime. The
    /// environment variable `RUST_LOG` overrides the level. Threads write the lines, so that a reader of standard
    /// error who stops reading never delays a request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `RUST_LOG`, the level or the endpoint is invalid;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if the process already has a logger.
    pub fn start(&self) -> Result<Logging> {
        // Without a hint, the spans of the HTTP/2 library are created for every frame, and then not logged: that
        // takes half of the time of a cached response over HTTP/2.
        let is_loggable = |metadata: &Metadata<'_>| metadata.target() != TRACE_TARGET && !shows_messages(metadata);
        let loggable = filter_fn(is_loggable).with_max_level_hint(LevelFilter::TRACE);
        let log = Lines::start("ipfrs-log");
        let (filter, handle) = reload::Layer::new(self.filter()?);
        log_levels::offer(handle, self.directives());
        let log_lines = self.lines(log.writer.clone()).with_filter(filter.and(loggable));
        let provider = (!self.otlp_endpoint.is_empty()).then(|| self.provider()).transpose()?;
        let spans = provider.as_ref().map(|provider| {
            // Work belongs to a trace if its request does.
            let is_traced = dynamic_filter_fn(|metadata, context| {
                metadata.target() == TRACE_TARGET
                    && (metadata.name() == traces::REQUEST || context.lookup_current().is_some())
            })
            .with_max_level_hint(LevelFilter::INFO);
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("ipfrs"));
            layer.with_location(false).with_threads(false).with_target(false).with_filter(is_traced)
        });
        let registry = tracing_subscriber::registry().with(log_lines);
        started(match spans {
            Some(spans) => registry.with(spans).try_init(),
            // A layer that is `None` would enable all spans.
            None => registry.try_init(),
        })?;
        if provider.is_some() {
            traces::enable(self.trace_one_in);
        }
        let access = self.access.then(|| AccessLog::start(self.format)).transpose()?;
        Ok(Logging { log, access, provider })
    }

    /// Replaces the filter of the running log by that of this section.
    pub(crate) fn apply_level(&self) -> Result<()> {
        log_levels::replace(&self.directives())
    }

    fn filter(&self) -> Result<EnvFilter> {
        self.validate()?;
        let directives = self.directives();
        EnvFilter::try_new(&directives)
            .map_err(|e| Error::invalid(format!("the environment variable RUST_LOG = {directives:?}: {e}")))
    }

    /// Returns the directives of the filter: those of the environment, or else of the configuration.
    fn directives(&self) -> String {
        match std::env::var("RUST_LOG") {
            Ok(directives) if !directives.is_empty() => directives,
            // libp2p logs each start at info. Directives of the configuration come last and take precedence.
            _ => format!("libp2p=warn,libp2p_swarm=warn,{}", self.level),
        }
    }

    /// Returns a layer that writes lines in the configured format.
    fn lines<S, W>(&self, writer: W) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(io::stderr().is_terminal());
        match self.format {
            LogFormat::Text => layer.boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        }
    }

    /// Returns the exporter of traces. It has a thread and a bounded queue: spans that do not fit are dropped.
    fn provider(&self) -> Result<SdkTracerProvider> {
        // The value may contain credentials.
        let invalid = |e: &dyn std::fmt::Display| Error::invalid(format!("log.otlp_endpoint is not usable: {e}"));
        Handle::try_current().map_err(|e| invalid(&e))?;
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(&self.otlp_endpoint);
        let exporter = exporter.build().map_err(|e| invalid(&e))?;
        let resource = Resource::builder()
            .with_service_name("ipfrs")
            .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        // Which requests are traced is decided before their spans exist.
        let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn).with_resource(resource.build());
        Ok(provider.with_batch_exporter(LoggedExporter::new(exporter)).build())
    }
}

/// Whether a line shows what clients send and receive over WebSockets. It is never logged, whatever the level.
fn shows_messages(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::TRACE && metadata.target().starts_with(WEBSOCKET_TARGET)
}

fn started(result: std::result::Result<(), TryInitError>) -> Result<()> {
    result.map_err(|e| Error::new(ErrorKind::Conflict, format!("the log could not be started: {e}")))
}

/// A log whose lines a thread writes.
struct Lines {
    writer: NonBlocking,
    dropped: ErrorCounter,
    /// Writes the waiting lines when it is dropped.
    _guard: WorkerGuard,
}

impl Lines {
    fn start(thread: &str) -> Self {
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_WAITING_LINES);
        let (writer, guard) = builder.thread_name(thread).finish(Together(Vec::with_capacity(WRITE_BYTES)));
        Self { dropped: writer.error_counter(), writer, _guard: guard }
    }
}

/// Writes lines to standard error many at a time, and none of them in parts between others.
struct Together(Vec<u8>);

impl Write for Together {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.len() + line.len() > WRITE_BYTES {
            self.flush()?;
        }
        self.0.extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = io::stderr().lock().write_all(&self.0);
        self.0.clear();
        written
    }
}

/// The running log. Dropping it writes the waiting lines, and exports the last traces.
#[must_use = "the last lines and traces are lost otherwise"]
pub struct Logging {
    log: Lines,
    access: Option<AccessLog>,
    provider: Option<SdkTracerProvider>,
}

impl std::fmt::Debug for Logging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logging").finish_non_exhaustive()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown_with_timeout(LAST_EXPORT)
        {
            tracing::warn!(%error, "the last traces were not exported");
        }
        let access = self.access.as_ref().map_or(0, AccessLog::dropped);
        let log = self.log.dropped.dropped_lines();
        if access > 0 || log > 0 {
            tracing::warn!(access, log, "lines were dropped, because nobody read them in time");
        }
    }
}
