//! Heads of WebSocket frames (RFC 6455, 5.2). Control frames and empty ones carry no data.

use crate::overhead::{FrameBytes, FrameHeads};

/// Maximum length of the head of a frame, in bytes.
const MAX_HEAD_BYTES: usize = 14;

/// Length of the head of the frame with which the server responds to a ping, in bytes.
const PONG_HEAD_BYTES: u64 = 2;

/// The frames of a client, by their bytes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Number of remaining bytes of the payload of the current frame.
    remaining: u64,
    /// The beginning of the next head.
    head: [u8; MAX_HEAD_BYTES],
    head_bytes: usize,
}

impl FrameHeads for Frames {
    fn receive(&mut self, mut read: &[u8], bytes: &mut FrameBytes) {
        loop {
            let skipped = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(read.len());
            self.remaining -= skipped as u64;
            read = &read[skipped..];
            let Some((first, rest)) = read.split_first() else { return };
            self.head[self.head_bytes] = *first;
            (self.head_bytes, read) = (self.head_bytes + 1, rest);
            if self.head_bytes == self.head_length() {
                self.begin_frame(bytes);
                self.head_bytes = 0;
            }
        }
    }
}

impl Frames {
    /// Returns the length of the head of which the first bytes have arrived.
    fn head_length(&self) -> usize {
        const IS_MASKED: u8 = 0x80;
        let [_, second, ..] = self.head;
        if self.head_bytes < 2 {
            return 2;
        }
        let length = match second & !IS_MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if second & IS_MASKED == 0 { 0 } else { 4 }
    }

    fn begin_frame(&mut self, bytes: &mut FrameBytes) {
        const OPCODE: u8 = 0x0f;
        const IS_CONTROL: u8 = 0x08;
        const PING: u8 = 9;
        let [first, second, length @ ..] = &self.head;
        let extended = |size: usize| length[..size].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let payload = match second & 0x7f {
            126 => extended(2),
            127 => extended(8),
            short => u64::from(short),
        };
        self.remaining = payload;
        let frame = payload.saturating_add(self.head_bytes as u64);
        if first & IS_CONTROL != 0 || payload == 0 {
            bytes.overhead = bytes.overhead.saturating_add(frame);
        } else {
            bytes.data = bytes.data.saturating_add(frame);
        }
        if first & OPCODE == PING {
            bytes.acknowledging = bytes.acknowledging.saturating_add(payload.saturating_add(PONG_HEAD_BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 0x81;
    const FRAGMENT: u8 = 0;
    const PING: u8 = 0x89;

    /// Returns a masked frame.
    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![first];
        match payload {
            0..126 => frame.push(0x80 | payload as u8),
            126..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend((payload as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + 4 + payload, 0xff);
        frame
    }

    #[test]
    fn counts_frames_in_pieces_of_any_length() {
        let frames =
            [frame(TEXT, 1), frame(PING, 5), frame(FRAGMENT, 0), frame(TEXT, 200), frame(TEXT, 70_000), frame(PING, 0)];
        for piece in [1, 2, 3, 7, 100, 100_000] {
            let (mut heads, mut bytes) = (Frames::default(), FrameBytes::default());
            frames.concat().chunks(piece).for_each(|piece| heads.receive(piece, &mut bytes));
            let expected = FrameBytes { overhead: 11 + 6 + 6, data: 7 + 208 + 70_014, acknowledging: 7 + 2 };
            assert_eq!((bytes, heads.remaining), (expected, 0), "pieces of {piece}");
        }
    }

    #[test]
    fn longest_length_of_a_frame_is_counted_without_overflow() {
        let head = [&[PING, 0x80 | 127][..], &[0xff; 8 + 4]].concat();
        let (mut heads, mut bytes) = (Frames::default(), FrameBytes::default());
        heads.receive(&head, &mut bytes);
        assert_eq!(bytes, FrameBytes { overhead: u64::MAX, data: 0, acknowledging: u64::MAX });
    }
}
