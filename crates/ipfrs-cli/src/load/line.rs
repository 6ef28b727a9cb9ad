//! Sequential requests on a persistent connection.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use axum::http::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::tally::{Completed, Fault};
use super::target::Get;

/// Total size of the read buffers of all connections, unless the minimum size per connection requires more. About
/// three times as many bytes are in use while all connections receive data.
const ALL_READ_BUFFERS_BYTES: usize = 64 * 1024 * 1024;
/// Minimum and maximum size of a read buffer. The head of a response must fit into it. Beyond the maximum, a larger
/// buffer does not save system calls.
const READ_BUFFER_BYTES: (usize, usize) = (16 * 1024, 256 * 1024);

/// Address and parameters of the connections.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    is_http2: bool,
    read_buffer_bytes: usize,
    /// Number of connections opened so far.
    opened: AtomicU64,
}

/// A slot for one request at a time: an HTTP/1.1 connection, or one of the streams of an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Line {
    server: Arc<Server>,
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    Own(Option<Own>),
    Shared(Arc<Mutex<Option<Shared>>>),
}

type Shared = http2::SendRequest<Empty<Bytes>>;
type Connection = http1::Connection<TokioIo<TcpStream>, Empty<Bytes>>;

/// An HTTP/1.1 connection, which is driven by the task that uses it.
#[derive(Debug)]
struct Own {
    sender: http1::SendRequest<Empty<Bytes>>,
    connection: Option<Pin<Box<Connection>>>,
}

/// Reason that there is no response.
enum Failure {
    /// No part of the request was sent, because the connection was already closed.
    Unsent(Box<Get>, Fault),
    Lost(Fault),
}

impl Server {
    pub(super) fn new(address: SocketAddr, is_http2: bool, connections: usize) -> Self {
        let (smallest, largest) = READ_BUFFER_BYTES;
        let read_buffer_bytes = (ALL_READ_BUFFERS_BYTES / connections.max(1)).clamp(smallest, largest);
        Self { address, is_http2, read_buffer_bytes, opened: AtomicU64::new(0) }
    }

    /// Returns the number of connections opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, Fault> {
        let stream = TcpStream::connect(self.address).await.map_err(|_| Fault::Connect)?;
        stream.set_nodelay(true).map_err(|_| Fault::Connect)?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(TokioIo::new(stream))
    }

    async fn open_own(&self) -> Result<Own, Fault> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(self.read_buffer_bytes);
        let handshake = builder.handshake(self.connect().await?).await;
        let (sender, connection) = handshake.map_err(|e| fault_of(&e))?;
        Ok(Own { sender, connection: Some(Box::pin(connection)) })
    }

    async fn open_shared(&self) -> Result<Shared, Fault> {
        let handshake = http2::handshake(TokioExecutor::new(), self.connect().await?).await;
        let (sender, connection) = handshake.map_err(|e| fault_of(&e))?;
        // The task ends when the last sender is dropped. Requests that wait for a response receive the error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

impl Line {
    /// Returns the lines of one connection, which is not open yet.
    pub(super) fn of_connection(server: &Arc<Server>, streams: usize) -> Vec<Self> {
        let line = |wire| Self { server: Arc::clone(server), wire };
        if !server.is_http2 {
            return vec![line(Wire::Own(None))];
        }
        let shared = Arc::new(Mutex::new(None));
        (0..streams).map(|_| line(Wire::Shared(Arc::clone(&shared)))).collect()
    }

    /// Opens the connection if it is not open yet.
    pub(super) async fn open(&mut self) -> Result<(), Fault> {
        match &mut self.wire {
            Wire::Own(Some(_)) => {}
            Wire::Own(own) => *own = Some(self.server.open_own().await?),
            Wire::Shared(shared) => {
                let mut shared = shared.lock().await;
                if shared.is_none() {
                    *shared = Some(self.server.open_shared().await?);
                }
            }
        }
        Ok(())
    }

    /// Sends a request and discards the body of its response as it arrives. If the server closed the connection
    /// between two requests, as servers may, opens a new one.
    pub(super) async fn exchange(&mut self, request: Get) -> Result<Completed, Fault> {
        match self.attempt(request).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Lost(fault)) => Err(fault),
            Err(Failure::Unsent(request, _)) => match self.attempt(*request).await {
                Ok(answer) => Ok(answer),
                Err(Failure::Lost(fault) | Failure::Unsent(_, fault)) => Err(fault),
            },
        }
    }

    async fn attempt(&mut self, request: Get) -> Result<Completed, Failure> {
        match &mut self.wire {
            Wire::Own(own) => {
                let Own { sender, connection } = match own {
                    Some(own) => own,
                    None => own.insert(self.server.open_own().await.map_err(Failure::Lost)?),
                };
                let work = async {
                    if let Err(e) = sender.ready().await {
                        return Err(Failure::Unsent(Box::new(request), fault_of(&e)));
                    }
                    received(sender.try_send_request(request).await).await
                };
                let outcome = beside(connection, work).await;
                if outcome.is_err() {
                    *own = None;
                }
                outcome
            }
            Wire::Shared(shared) => {
                let mut sender = {
                    let mut shared = shared.lock().await;
                    match &*shared {
                        Some(sender) if !sender.is_closed() => sender.clone(),
                        _ => shared.insert(self.server.open_shared().await.map_err(Failure::Lost)?).clone(),
                    }
                };
                if let Err(e) = sender.ready().await {
                    return Err(Failure::Unsent(Box::new(request), fault_of(&e)));
                }
                match received(sender.try_send_request(request).await).await {
                    // The server reset this stream only. The others continue.
                    Err(Failure::Lost(Fault::Protocol)) if !sender.is_closed() => Err(Failure::Lost(Fault::Reset)),
                    outcome => outcome,
                }
            }
        }
    }

    /// Cancels a request after a timeout. An HTTP/1.1 connection cannot be used after that, so it is closed.
    pub(super) fn give_up(&mut self) {
        if let Wire::Own(own) = &mut self.wire {
            *own = None;
        }
    }
}

/// Runs `work` while driving `connection` in the same task. Arriving bytes wake one task once, without a switch
/// between threads.
async fn beside<T>(connection: &mut Option<Pin<Box<Connection>>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        // Requests that wait for a response receive the connection's error.
        if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(context).is_ready()) {
            *connection = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

async fn received(sent: Result<Response<Incoming>, TrySendError<Get>>) -> Result<Completed, Failure> {
    let response = sent.map_err(|mut error| {
        let request = error.take_message();
        let fault = fault_of(error.error());
        request.map_or(Failure::Lost(fault), |request| Failure::Unsent(Box::new(request), fault))
    })?;
    let (head, mut body) = response.into_parts();
    let expected = body.size_hint().exact();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Lost(Fault::CutOff))?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    if expected.is_some_and(|expected| expected != bytes) {
        return Err(Failure::Lost(Fault::CutOff));
    }
    Ok(Completed { status: head.status, headers: head.headers, bytes, is_sized: expected.is_some() })
}

fn fault_of(error: &hyper::Error) -> Fault {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    let io = causes.filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind).next();
    match io {
        Some(io::ErrorKind::UnexpectedEof) => Fault::Closed,
        Some(_) => Fault::Reset,
        None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => Fault::Closed,
        None => Fault::Protocol,
    }
}
