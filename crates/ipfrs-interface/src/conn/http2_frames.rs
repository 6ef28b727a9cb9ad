//! Heads of HTTP/2 frames (RFC 9113, 4.1). Frames other than HEADERS and DATA carry no data, nor do heads (10.5).

use ipfrs_middleware::overhead::{FrameBytes, FrameHeads};

use super::fast_path::PREFACE;

/// Number of bytes in the head of a frame (RFC 9113, 4.1).
const HEAD_BYTES: usize = 9;
/// Number of bytes in the acknowledgement of a PING and of a SETTINGS frame.
const PING_ACK_BYTES: u64 = 17;
const SETTINGS_ACK_BYTES: u64 = 9;

/// The frames of a client, by their bytes.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Number of remaining bytes of the preface or of the payload of the current frame.
    remaining: usize,
    /// The beginning of the next head.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { remaining: PREFACE.len(), head: [0; HEAD_BYTES], head_bytes: 0 }
    }
}

impl FrameHeads for Frames {
    fn receive(&mut self, mut read: &[u8], bytes: &mut FrameBytes) {
        loop {
            let skipped = self.remaining.min(read.len());
            self.remaining -= skipped;
            read = &read[skipped..];
            if read.is_empty() {
                return;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(read.len());
            self.head[self.head_bytes..][..taken].copy_from_slice(&read[..taken]);
            self.head_bytes += taken;
            read = &read[taken..];
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                self.begin_frame(bytes);
            }
        }
    }
}

impl Frames {
    fn begin_frame(&mut self, bytes: &mut FrameBytes) {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        let [high, middle, low, kind, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        self.remaining = length as usize;
        bytes.overhead += HEAD_BYTES as u64;
        match kind {
            DATA | HEADERS => bytes.data += u64::from(length),
            PING => bytes.acknowledging += PING_ACK_BYTES,
            SETTINGS => bytes.acknowledging += SETTINGS_ACK_BYTES,
            _ => {}
        }
        if !matches!(kind, DATA | HEADERS) {
            bytes.overhead += u64::from(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u32) -> Vec<u8> {
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.resize(HEAD_BYTES + length as usize, 0);
        frame
    }

    #[test]
    fn counts_frames_in_pieces_of_any_length() {
        let frames =
            [frame(4, 30), frame(1, 50), frame(8, 4), frame(0, 20_000), frame(0, 0), frame(6, 8), frame(99, 7)];
        let sent = [PREFACE, &frames.concat()].concat();
        for piece in [1, 2, 8, 9, 10, 33, 1000, 100_000] {
            let (mut heads, mut bytes) = (Frames::default(), FrameBytes::default());
            sent.chunks(piece).for_each(|piece| heads.receive(piece, &mut bytes));
            let expected = FrameBytes { overhead: 7 * 9 + 30 + 4 + 8 + 7, data: 20_050, acknowledging: 17 + 9 };
            assert_eq!(bytes, expected, "pieces of {piece}");
        }
    }
}
