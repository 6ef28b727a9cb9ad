//! Frames of HTTP/2 (RFC 9113), byte by byte, because no library sends what attackers send.

/// First bytes of a client, before SETTINGS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of the head of a frame.
pub(crate) const HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// A type that no specification defines.
pub(crate) const UNKNOWN: u8 = 0xee;

pub(crate) const NO_FLAGS: u8 = 0;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Setting for the window of each stream.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Largest window (RFC 9113, 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// Window of a connection at its beginning (6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;

/// Returns one frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns what opens a connection with the default settings.
pub(crate) fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, NO_FLAGS, 0, &[])].concat()
}

/// Returns what opens a connection with the largest windows.
pub(crate) fn wide_opening() -> Vec<u8> {
    let window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &MAX_WINDOW.to_be_bytes()].concat();
    let connection = (MAX_WINDOW - DEFAULT_WINDOW).to_be_bytes();
    [PREFACE, &frame(SETTINGS, NO_FLAGS, 0, &window), &frame(WINDOW_UPDATE, NO_FLAGS, 0, &connection)].concat()
}

/// Returns the header block of a GET (RFC 7541). `path` has fewer than 127 bytes.
pub(crate) fn get_block(path: &str) -> Vec<u8> {
    // `:method: GET` and `:scheme: http` of the static table, then `:path` and `:authority` as literals.
    let mut block = vec![0x82, 0x86];
    block.extend(literal(4, path.as_bytes()));
    block.extend(literal(1, b"127.0.0.1"));
    block
}

/// Returns a header with a name of the static table and a literal value, which no table keeps.
fn literal(name: u8, value: &[u8]) -> Vec<u8> {
    [&[name, u8::try_from(value.len()).unwrap_or(u8::MAX)], value].concat()
}

/// Returns a literal header that enters the dynamic table, as its first entry. `value` has 127 to 16,000 bytes.
pub(crate) fn kept_header(name: &str, value: &[u8]) -> Vec<u8> {
    let name_length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let more = value.len() - 127;
    let (low, high) = ((more % 128) as u8 | 0x80, (more / 128) as u8);
    [&[0x40, name_length], name.as_bytes(), &[0x7f, low, high], value].concat()
}

/// A reference to the first entry of the dynamic table.
pub(crate) const FIRST_KEPT: u8 = 0x80 | 62;

/// Returns the name of an error code (RFC 9113, 7).
pub(crate) fn error_name(code: u32) -> String {
    let names = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
    ];
    names.get(code as usize).map_or_else(|| format!("error {code}"), |name| format!("`{name}`"))
}
