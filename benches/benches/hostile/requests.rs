//! Requests that cost the gateway more than the client.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use ipfrs_benches::{get, post, random};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::site::Target;

/// Time in which a response must have begun.
const PATIENCE: Duration = Duration::from_secs(60);
const MULTIPART: &str = "multipart/form-data; boundary=x";
/// Size of a body that has no reason to be large.
const LARGE_BYTES: usize = 80_000_000;
/// Levels of the tree whose branches repeat.
const LEVELS: usize = 40;
/// Bytes of zeros in the bomb.
const BOMB_BYTES: usize = 200 << 20;
/// Size of a large block.
const BLOCK_BYTES: usize = 2_000_000;
/// Slow clients for each reader of a tree.
const TREES: usize = 25;

pub(crate) fn graphql(target: &Target) -> Result<String> {
    let cid = target.small.trim_start_matches("/ipfs/");
    let aliases: String = (0..2_000).map(|number| format!("a{number}:block(cid:\"{cid}\"){{cid}} ")).collect();
    let mut fragments = "{...f0}".to_owned();
    for level in 0..30 {
        let next = level + 1;
        write!(fragments, "fragment f{level} on Query{{...f{next} ...f{next}}}")?;
    }
    fragments.push_str("fragment f30 on Query{__typename}");
    let documents = [
        (
            format!("{{{}}}", &aliases[..aliases.len().min(60_000)].rsplit_once(" a").map_or("", |(some, _)| some)),
            json!({}),
        ),
        (fragments, json!({})),
        (format!("{}x{}", "{a".repeat(10_000), "}".repeat(10_000)), json!({})),
        (format!("{{__typename {}}}", "@skip(if:false) ".repeat(3_000)), json!({})),
        (
            "query($v:[[Int]]){__typename}".to_owned(),
            json!({ "v": (0..100).fold(json!(1), |inner, _| json!([inner])) }),
        ),
    ];
    let mut longest = Duration::ZERO;
    let mut statuses = Vec::new();
    for (query, variables) in documents {
        let body = json!({ "query": query, "variables": variables }).to_string();
        let request = [post("/graphql", "application/json", "", body.len() as u64), body.into_bytes()].concat();
        let start = Instant::now();
        let response = response(target.gateway.address(), &request)?;
        longest = longest.max(start.elapsed());
        let has_failed = response.status != 200 || response.text.contains("\"errors\"");
        statuses.push(format!("{}{}", response.status, if has_failed { "" } else { " without errors" }));
    }
    let done = statuses[1..].iter().all(|status| !status.contains("without"));
    ensure!(done, "a bomb was executed: {}", statuses.join(", "));
    Ok(format!("{} within {} ms", statuses.join(", "), longest.as_millis()))
}

pub(crate) fn many_parts(target: &Target) -> Result<String> {
    let count = 100 * target.clients;
    let part = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\r\n";
    let body = format!("{}--x--\r\n", part.repeat(count));
    let start = Instant::now();
    let head = post("/api/v0/add?quieter=true&pin=false", MULTIPART, "", body.len() as u64);
    let response = response(target.gateway.address(), &[head, body.into_bytes()].concat())?;
    Ok(format!("{} parts: {} after {} ms", count, response.status, start.elapsed().as_millis()))
}

pub(crate) fn endless_part_head(target: &Target) -> Result<String> {
    let body = [b"--x\r\nx-header: ".to_vec(), vec![b'x'; LARGE_BYTES]].concat();
    let head = post("/api/v0/add", MULTIPART, "", body.len() as u64);
    let response = response(target.gateway.address(), &[head, body].concat())?;
    ensure!(response.status >= 400, "the gateway took a header of {LARGE_BYTES} bytes");
    Ok(response.status.to_string())
}

pub(crate) fn encoded_bodies(target: &Target) -> Result<String> {
    for coding in ["gzip", "br", "deflate", "gzip, gzip", "zstd"] {
        let headers = format!("Content-Encoding: {coding}\r\n");
        let request = [post("/v1/block/batch/get", "application/json", &headers, 2), b"{}".to_vec()].concat();
        let status = response(target.gateway.address(), &request)?.status;
        ensure!(status == 415, "{coding}: {status} instead of 415");
    }
    Ok("415".to_owned())
}

pub(crate) fn grpc_bomb(target: &Target) -> Result<String> {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(&vec![0; BOMB_BYTES])?;
    let zipped = zipped.finish()?;
    let bomb = [&[1], &u32::try_from(zipped.len())?.to_be_bytes()[..], &zipped].concat();
    let huge = [&[0], &u32::MAX.to_be_bytes()[..], &[0; 1_000]].concat();
    let url = format!("http://{}/ipfrs.block.v1.BlockService/PutBlock", target.gateway.grpc_address());
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let client = reqwest::Client::builder().http2_prior_knowledge().timeout(PATIENCE).build()?;
        for body in [bomb, huge] {
            let request = client.post(&url).header("content-type", "application/grpc").header("te", "trailers");
            let response = request.header("grpc-encoding", "gzip").body(body).send().await?;
            let status = response.headers().get("grpc-status").context("the message was taken")?;
            ensure!(status == "8", "the status is {status:?} instead of RESOURCE_EXHAUSTED");
        }
        Ok("`RESOURCE_EXHAUSTED`, also for a length of 4 GiB".to_owned())
    })
}

pub(crate) fn broken_cars(target: &Target) -> Result<String> {
    // An array in an array, and so on.
    let deep = [vec![0xff, 0x7f], vec![0x81; 16_383]].concat();
    let cars = [vec![0xff; 1_000_000], vec![0x80; 1_000_000], vec![0xff, 0xff, 0xff, 0xff, 0x7f], deep];
    let mut statuses = Vec::new();
    for car in cars {
        let part = b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n".to_vec();
        let body = [part, car, b"\r\n--x--\r\n".to_vec()].concat();
        let head = post("/api/v0/dag/import", MULTIPART, "", body.len() as u64);
        let response = response(target.gateway.address(), &[head, body].concat())?;
        ensure!(response.status >= 400, "a broken CAR was taken: {}", response.text);
        statuses.push(response.status.to_string());
    }
    Ok(statuses.join(", "))
}

pub(crate) fn repeated_trees(target: &Target) -> Result<String> {
    let address = target.gateway.address();
    let mut root = target.small.trim_start_matches("/ipfs/").to_owned();
    for _ in 0..LEVELS {
        let link = |name: &str| json!({ "Hash": { "/": root.as_str() }, "Name": name, "Tsize": 1 });
        // The data of a directory in UnixFS.
        let node = json!({ "Data": { "/": { "bytes": "CAE" } }, "Links": [link("a"), link("b")] });
        let body = format!("--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{node}\r\n--x--\r\n");
        let path = "/api/v0/dag/put?input-codec=dag-json&store-codec=dag-pb";
        let request = [post(path, MULTIPART, "", body.len() as u64), body.into_bytes()].concat();
        let response = response(address, &request)?;
        let put: Value =
            serde_json::from_str(response.text.lines().find(|line| line.starts_with('{')).unwrap_or_default())
                .context(response.text)?;
        root = put["Cid"]["/"].as_str().context("no content ID")?.to_owned();
    }
    let requests = [
        get(&format!("/ipfs/{root}?format=tar")),
        get(&format!("/ipfs/{root}?format=car&car-dups=y")),
        post(&format!("/api/v0/refs?recursive=true&arg={root}"), "text/plain", "", 0),
        post(&format!("/api/v0/dag/stat?arg={root}"), "text/plain", "", 0),
    ];
    unread(target, requests.iter().cycle().take(requests.len() * (target.clients / TREES).max(1)))
}

pub(crate) fn unread_batches(target: &Target) -> Result<String> {
    let part = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".to_vec();
    let body = [part, random(3, BLOCK_BYTES), b"\r\n--x--\r\n".to_vec()].concat();
    let request = [post("/api/v0/block/put", MULTIPART, "", body.len() as u64), body].concat();
    let response = response(target.gateway.address(), &request)?;
    let line = response.text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let put: Value = serde_json::from_str(line).context(response.text.clone())?;
    let body = json!({ "cids": [&put["Key"], &put["Key"]] }).to_string();
    let head = post("/v1/block/batch/get", "application/json", "", body.len() as u64);
    unread(target, iter::repeat_n(&[head, body.into_bytes()].concat(), target.clients))
}

/// Sends each request on a connection of its own, and reads the responses only after the attack, to see that they have
/// begun.
fn unread<'r>(target: &Target, requests: impl Iterator<Item = &'r Vec<u8>>) -> Result<String> {
    let mut open = Vec::new();
    for request in requests {
        let mut stream = TcpStream::connect(target.gateway.address())?;
        stream.write_all(request)?;
        open.push(stream);
    }
    thread::sleep(target.time);
    for stream in &mut open {
        stream.set_read_timeout(Some(PATIENCE))?;
        ensure!(stream.read(&mut [0; 64])? > 0, "a response has not begun");
    }
    Ok(format!("{} responses have begun", open.len()))
}

/// A response on a connection of its own.
struct Response {
    status: u16,
    /// Its beginning, at least the head.
    text: String,
}

/// Sends a request on a new connection. The gateway may respond, and close the connection, before it has all of it.
fn response(address: SocketAddr, request: &[u8]) -> Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut writer = stream.try_clone()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            // The gateway may close the connection before it has read all.
            let _ = writer.write_all(request);
        });
        let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1_024]);
        loop {
            let count = stream.read(&mut buffer).context("no response")?;
            received.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&received);
            // A body of an error fits into what arrives with its head, or follows at once.
            if count == 0 || is_complete(&text) {
                stream.shutdown(std::net::Shutdown::Both)?;
                let status = text.get(9..12).and_then(|status| status.parse().ok());
                let Some(status) = status else { bail!("no response, but {text:?}") };
                return Ok(Response { status, text: text.into_owned() });
            }
        }
    })
}

/// Whether a response has all bytes of its Content-Length, or the last chunk.
fn is_complete(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.map_or_else(|| body.ends_with("0\r\n\r\n"), |length: usize| body.len() >= length)
}
