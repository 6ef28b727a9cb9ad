//! Frames of text messages, without the library.

/// Maximum length of the head of a frame that a server sends, in bytes (RFC 6455, 5.2).
pub(super) const MAX_FRAME_HEAD_BYTES: usize = 10;

/// Appends a text message as a frame of a server (RFC 6455, 5.2) to `out`.
pub fn text_frame(out: &mut Vec<u8>, text: &[u8]) {
    const FINAL_TEXT: u8 = 0x81;
    out.push(FINAL_TEXT);
    if let Ok(length @ ..126) = u8::try_from(text.len()) {
        out.push(length);
    } else if let Ok(length) = u16::try_from(text.len()) {
        out.push(126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(127);
        out.extend_from_slice(&(text.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(text);
}
