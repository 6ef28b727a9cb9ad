//! DNS server in the test process, on loopback. It serves UDP, TCP and HTTP and returns the replies that tests
//! configure.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hickory_resolver::proto::op::{Message, Metadata, ResponseCode};
use hickory_resolver::proto::rr::rdata::{CNAME, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Configured reply for a name.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A record of these strings, with a TTL.
    Txt(Vec<String>, u32),
    /// Several records of one string each.
    Several(Vec<String>, u32),
    /// A CNAME record for another name, with a TTL. The reply also contains the records of that name.
    Alias(&'static str, u32),
    /// The name does not exist; resolvers may cache this for the given number of seconds.
    Absent(u32),
    /// The name exists, but has no such record.
    Empty,
    /// The server failed.
    Failure,
    /// The server does not reply.
    Silence,
}

impl Reply {
    pub(crate) fn link(target: &str, ttl: u32) -> Self {
        Self::Txt(vec![format!("dnslink={target}")], ttl)
    }
}

#[derive(Debug, Default)]
struct State {
    replies: Mutex<HashMap<String, Reply>>,
    questions: Mutex<Vec<String>>,
    asked: Notify,
    /// If set, replies wait for this notification.
    held: Mutex<Option<Arc<Notify>>>,
    /// Whether replies over UDP are truncated.
    is_truncating: Mutex<bool>,
    /// Head of the next HTTP responses, instead of that of a successful one.
    http_head: Mutex<Option<String>>,
}

/// The server. Names that are not configured do not exist; resolvers may cache this for a minute.
#[derive(Debug)]
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    pub(crate) http: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl DnsServer {
    pub(crate) async fn start(replies: impl IntoIterator<Item = (&str, Reply)>) -> Self {
        // DNS uses the same port for UDP and TCP, so retry until both are free.
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = tcp.local_addr().unwrap();
        let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = web.local_addr().unwrap();
        let state = Arc::new(State::default());
        let replies = replies.into_iter().map(|(name, reply)| (format!("{name}."), reply));
        state.replies.lock().extend(replies);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(Arc::clone(&state), udp));
        tasks.spawn(serve_tcp(Arc::clone(&state), tcp));
        tasks.spawn(serve_http(Arc::clone(&state), web));
        Self { address, http, state, _tasks: tasks }
    }

    pub(crate) fn tell(&self, name: &str, reply: Reply) {
        self.state.replies.lock().insert(format!("{name}."), reply);
    }

    /// Returns the names that were queried since the last call.
    pub(crate) fn questions(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.questions.lock())
    }

    /// Delays replies until the returned notification.
    pub(crate) fn hold(&self) -> Arc<Notify> {
        let held = Arc::new(Notify::new());
        *self.state.held.lock() = Some(Arc::clone(&held));
        held
    }

    pub(crate) fn release(&self, held: &Notify) {
        *self.state.held.lock() = None;
        held.notify_waiters();
    }

    /// Waits for the next query.
    pub(crate) async fn asked(&self) {
        self.state.asked.notified().await;
    }

    pub(crate) fn truncate(&self) {
        *self.state.is_truncating.lock() = true;
    }

    pub(crate) fn http_head(&self, head: &str) {
        *self.state.http_head.lock() = Some(head.to_owned());
    }
}

impl State {
    /// Returns the reply to a query, as sent over TCP and HTTP; `None` for [`Reply::Silence`].
    async fn answer(&self, question: &[u8]) -> Option<Message> {
        let question = Message::from_vec(question).unwrap();
        let query = question.queries.first().unwrap().clone();
        // Resolvers may change the case of letters.
        let name = query.name().to_ascii().to_ascii_lowercase();
        self.questions.lock().push(name.trim_end_matches('.').to_owned());
        let held = self.held.lock().clone();
        let released = held.as_ref().map(|held| held.notified());
        self.asked.notify_one();
        if let Some(released) = released {
            released.await;
        }
        let mut answer = Message::response(0, question.metadata.op_code);
        answer.metadata = Metadata::response_from_request(&question.metadata);
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let mut name = query.name().clone();
        loop {
            let known = self.replies.lock().get(&name.to_ascii().to_ascii_lowercase()).cloned();
            let mut add = |data, ttl| answer.answers.push(Record::from_rdata(name.clone(), ttl, data));
            match known.unwrap_or(Reply::Absent(60)) {
                Reply::Txt(strings, ttl) => add(RData::TXT(TXT::new(strings)), ttl),
                Reply::Several(texts, ttl) => {
                    texts.into_iter().for_each(|text| add(RData::TXT(TXT::new(vec![text])), ttl));
                }
                Reply::Alias(target, ttl) => {
                    let target = Name::from_ascii(format!("{target}.")).unwrap();
                    add(RData::CNAME(CNAME(target.clone())), ttl);
                    name = target;
                    continue;
                }
                Reply::Absent(ttl) => {
                    let soa = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, ttl);
                    answer.add_authority(Record::from_rdata(Name::root(), 1_000_000, RData::SOA(soa)));
                    answer.metadata.response_code = ResponseCode::NXDomain;
                }
                Reply::Empty => {}
                Reply::Failure => answer.metadata.response_code = ResponseCode::ServFail,
                Reply::Silence => return None,
            }
            return Some(answer);
        }
    }
}

async fn serve_udp(state: Arc<State>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut answering = JoinSet::new();
    let mut question = [0; 2_048];
    loop {
        let (length, from) = socket.recv_from(&mut question).await.unwrap();
        let (state, socket, question) = (Arc::clone(&state), Arc::clone(&socket), question[..length].to_vec());
        answering.spawn(async move {
            let Some(answer) = state.answer(&question).await else { return };
            let is_truncating = *state.is_truncating.lock();
            let answer = if is_truncating { answer.truncate() } else { answer };
            // The client may have closed its socket.
            let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
        });
    }
}

async fn serve_tcp(state: Arc<State>, listener: TcpListener) {
    let mut answering = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let state = Arc::clone(&state);
        answering.spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut question = vec![0; length.into()];
                stream.read_exact(&mut question).await.unwrap();
                let Some(answer) = state.answer(&question).await else { return };
                let answer = answer.to_vec().unwrap();
                stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
    }
}

async fn serve_http(state: Arc<State>, listener: TcpListener) {
    let mut answering = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = Arc::clone(&state);
        answering.spawn(async move {
            // The client disconnects when its test ends.
            let _ = answer_http(&state, stream).await;
        });
    }
}

async fn answer_http(state: &State, mut stream: TcpStream) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
        assert!(head.starts_with("post /dns-query http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/dns-message\r\n"), "{head}");
        let length: usize = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
        while received.len() < end + length {
            stream.read_buf(&mut received).await?;
        }
        let question: Vec<u8> = received.drain(..end + length).skip(end).collect();
        let Some(answer) = state.answer(&question).await else { return Ok(()) };
        let answer = answer.to_vec().unwrap();
        let success = || "HTTP/1.1 200 OK\r\nContent-Type: application/dns-message\r\n".to_owned();
        let head = state.http_head.lock().clone().unwrap_or_else(success);
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n", answer.len()).as_bytes()).await?;
        stream.write_all(&answer).await?;
    }
}
