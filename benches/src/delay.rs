//! A proxy that makes a server seem far away.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const PIECE_BYTES: usize = 64 * 1_024;
/// Pieces that are on their way in one direction: what is sent faster than that waits, as it would for a window.
const PIECES: usize = 256;

/// Passes on what comes, in both directions, a time later than it came. Its threads end with their connections; the one
/// that waits for connections stays until the program ends.
#[derive(Debug)]
pub struct DelayingProxy {
    address: SocketAddr,
}

impl DelayingProxy {
    /// In front of `server`. A request and its answer take `round_trip` longer.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn start(server: SocketAddr, round_trip: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the delaying proxy has no port")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for client in listener.incoming() {
                let passed = client.map_err(Into::into).and_then(|client| pass(client, server, round_trip / 2));
                if let Err(error) = passed {
                    eprintln!("the delaying proxy: {error:#}");
                }
            }
        });
        Ok(Self { address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn pass(client: TcpStream, server: SocketAddr, delay: Duration) -> Result<()> {
    let server = TcpStream::connect(server).context("there is no server behind it")?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let (pieces, arriving) = sync_channel(PIECES);
        thread::spawn(move || depart(from, delay, &pieces));
        thread::spawn(move || arrive(to, &arriving));
    }
    Ok(())
}

/// Bytes, and when they are there.
type Piece = (Instant, Vec<u8>);

/// Takes what is sent until the sender ends, or the receiver is gone.
fn depart(mut from: TcpStream, delay: Duration, pieces: &SyncSender<Piece>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if pieces.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
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
    // Nothing more comes; or the receiver has closed the connection already, and there is nobody to tell.
    drop(to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_arrives_unchanged_and_later_in_both_directions() {
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
}
