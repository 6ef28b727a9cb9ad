//! A proxy that simulates a distant server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;

const PIECE_BYTES: usize = 16 * 1_024;
/// Maximum number of pieces in transit in one direction: 16 MiB. A faster sender waits, as it would for a TCP window.
const PIECES: usize = 1_024;

/// Proxy that forwards bytes in both directions with a delay. Its threads end with their connections, except for the
/// thread that accepts connections, which runs until the program ends.
#[derive(Debug)]
pub struct DelayingProxy {
    address: SocketAddr,
}

impl DelayingProxy {
    /// Starts a proxy in front of `server` that adds `round_trip` to the time of a request and its response.
    ///
    /// # Errors
    /// Returns an error if no port can be bound.
    pub fn start(server: SocketAddr, round_trip: Duration) -> Result<Self> {
        Self::start_limited(server, round_trip, None)
    }

    /// Does the same as [`Self::start`]. In each direction, all connections together pass `bytes_per_second` at most.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_limited(server: SocketAddr, round_trip: Duration, bytes_per_second: Option<f64>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the delaying proxy has no port")?;
        let address = listener.local_addr()?;
        let links = [(); 2].map(|()| Arc::new(Link { bytes_per_second, free_at: Mutex::new(Instant::now()) }));
        thread::spawn(move || {
            for client in listener.incoming() {
                let passed = client.map_err(Into::into).and_then(|client| pass(client, server, round_trip / 2, &links));
                if let Err(error) = passed {
                    eprintln!("the delaying proxy: {error:#}");
                }
            }
        });
        Ok(Self { address })
    }

    /// Returns the address of the proxy.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// One direction of the network.
#[derive(Debug)]
struct Link {
    bytes_per_second: Option<f64>,
    /// Time at which everything that was sent before has passed.
    free_at: Mutex<Instant>,
}

impl Link {
    /// Returns the time at which the next `bytes` have passed.
    fn passed_at(&self, bytes: usize) -> Instant {
        let Some(rate) = self.bytes_per_second else { return Instant::now() };
        let mut free_at = self.free_at.lock();
        *free_at = Instant::now().max(*free_at) + Duration::from_secs_f64(bytes as f64 / rate);
        *free_at
    }
}

fn pass(client: TcpStream, server: SocketAddr, delay: Duration, links: &[Arc<Link>; 2]) -> Result<()> {
    let server = TcpStream::connect(server).context("there is no server behind it")?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let directions = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for ((from, to), link) in directions.into_iter().zip(links) {
        let (pieces, arriving) = sync_channel(PIECES);
        let link = Arc::clone(link);
        thread::spawn(move || depart(from, delay, &link, &pieces));
        thread::spawn(move || arrive(to, &arriving));
    }
    Ok(())
}

/// Time at which bytes are due at the receiver, and the bytes.
type Piece = (Instant, Vec<u8>);

/// Reads from the sender until it closes the connection or the receiver is gone.
fn depart(mut from: TcpStream, delay: Duration, link: &Link, pieces: &SyncSender<Piece>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if pieces.send((link.passed_at(length) + delay, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
}

fn arrive(mut to: TcpStream, arriving: &Receiver<Piece>) {
    for (due, piece) in arriving {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // Either the sender is finished or the receiver has already closed the connection, so an error needs no handling.
    drop(to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delaying_proxy_delays_both_directions() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let round_trip = Duration::from_millis(20);
        let proxy = DelayingProxy::start(server.local_addr().unwrap(), round_trip).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let start = Instant::now();
        client.write_all(b"ping").unwrap();
        let mut served = server.accept().unwrap().0;
        let mut got = [0; 4];
        served.read_exact(&mut got).unwrap();
        served.write_all(&got).unwrap();
        drop(served);
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"ping");
        assert!(start.elapsed() >= round_trip, "{:?}", start.elapsed());
    }

    #[test]
    fn limited_proxy_passes_bytes_at_its_rate() {
        const BYTES: usize = 100_000;
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let proxy = DelayingProxy::start_limited(address, Duration::ZERO, Some(BYTES as f64 / 0.05)).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let start = Instant::now();
        thread::spawn(move || server.accept().unwrap().0.write_all(&[0; BYTES]).unwrap());
        client.read_exact(&mut [0; BYTES]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
    }
}
