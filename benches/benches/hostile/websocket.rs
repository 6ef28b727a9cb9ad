//! Attacks with frames of WebSockets (RFC 6455).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ipfrs_benches::{Client, Multipart, Profile, random};

use crate::site::Target;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
/// Bit of the last frame of a message.
const LAST: u8 = 0x80;

/// Time after which a flood that the gateway still takes has succeeded.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames that are sent at once.
const FRAMES: usize = 1_000;
/// Subscribers for each slow client, divided.
const SUBSCRIBERS: usize = 2;

pub(crate) fn fragments(target: &Target) -> Result<String> {
    flood(target, &frame(TEXT, b"x"), &frame(CONTINUATION, &[b'x'; 1_000]))
}

pub(crate) fn control_frames(target: &Target) -> Result<String> {
    let pings = flood(target, &[], &frame(LAST | PING, b"x").repeat(FRAMES))?;
    let empty = flood(target, &frame(TEXT, b""), &frame(CONTINUATION, b"").repeat(FRAMES))?;
    Ok(format!("pings: {pings}; empty frames: {empty}"))
}

pub(crate) fn unread_events(target: &Target) -> Result<String> {
    let count = (target.clients / SUBSCRIBERS).max(1);
    let subscribe = br#"{"type":"subscribe","topic":"blocks"}"#;
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = connect(target)?;
        stream.write_all(&frame(LAST | TEXT, subscribe))?;
        open.push(stream);
    }
    let (end, mut added) = (target.end(), 0_u64);
    let mut client = Client::connect(target.gateway.address())?;
    while Instant::now() < end {
        let mut files = Multipart::default();
        for number in 0..100 {
            files.file(&random(1_000_000 + added + number, 100));
        }
        files.send(&mut client, Profile::DagPb)?;
        added += 100;
    }
    Ok(format!("{count} subscriptions, {added} files were added"))
}

/// Sends `first` and then `piece` until the gateway closes. Returns its close code.
fn flood(target: &Target, first: &[u8], piece: &[u8]) -> Result<String> {
    let mut stream = connect(target)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let receiver = stream.try_clone()?;
    let reader = thread::spawn(move || close_code(receiver));
    stream.write_all(first)?;
    let (start, mut sent) = (Instant::now(), first.len());
    while !reader.is_finished() && stream.write_all(piece).is_ok() {
        sent += piece.len();
        ensure!(start.elapsed() < PATIENCE, "the gateway still takes frames after {sent} bytes");
    }
    let code = reader.join().map_err(|_| anyhow!("the thread that reads has failed"))?;
    let code = code.map_or_else(|_| "ended".to_owned(), |code| format!("close code {code}"));
    Ok(format!("{code} after {:.1} MB", sent as f64 / 1e6))
}

/// Opens a WebSocket for events.
fn connect(target: &Target) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(target.gateway.address())?;
    stream.write_all(
        b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    )?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).context("the handshake failed")?;
        head.push(byte[0]);
    }
    ensure!(head.starts_with(b"HTTP/1.1 101 "), "the handshake failed: {}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Returns a frame of a client with the mask 0. `payload` has fewer than 65,536 bytes.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    const MASKED: u8 = 0x80;
    let length = payload.len();
    let length = match u8::try_from(length) {
        Ok(short) if short < 126 => vec![MASKED | short],
        _ => [&[MASKED | 126][..], &(length as u16).to_be_bytes()].concat(),
    };
    [&[kind], &length[..], &[0; 4], payload].concat()
}

/// Reads frames of the gateway until it closes. Returns the close code.
fn close_code(mut stream: TcpStream) -> Result<u16> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long)?;
                u64::from(u16::from_be_bytes(long))
            }
            127 => bail!("the gateway sent a large frame"),
            short => u64::from(short),
        };
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload)?;
        if head[0] & 0x0f == CLOSE {
            let code = payload.get(..2).context("a close frame has no code")?;
            return Ok(u16::from_be_bytes([code[0], code[1]]));
        }
    }
}
