//! Entry point for fuzzing `Upload-Metadata`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};

use super::{MAX_METADATA_BYTES, Metadata, UPLOAD_METADATA};

/// Reads the metadata in these headers. What was read is the same in one header, and has the name of the file in it.
pub(crate) fn metadata(values: &[&[u8]]) {
    let mut headers = HeaderMap::new();
    for value in values {
        let Ok(value) = HeaderValue::from_bytes(value) else { return };
        headers.append(UPLOAD_METADATA, value);
    }
    let Ok(read) = Metadata::read(&headers) else { return };
    assert!(read.text.len() <= MAX_METADATA_BYTES);
    let one = HeaderValue::from_str(&read.text).expect("it was in headers");
    let again = Metadata::read(&HeaderMap::from_iter([(UPLOAD_METADATA, one)])).expect("it was read before");
    assert_eq!((&again.text, &again.filename), (&read.text, &read.filename));
    if let Some(filename) = &read.filename {
        let pair = format!("filename {}", STANDARD.encode(filename));
        assert!(read.text.split(',').any(|other| other.trim() == pair), "{filename:?} in {:?}", read.text);
    }
}

#[cfg(test)]
mod tests {
    use super::metadata;

    #[test]
    fn metadata_of_all_kinds_are_read() {
        metadata(&[b"filename YS50eHQ=,other"]);
        metadata(&[b"filename YS50eHQ=", b"is_confidential"]);
        metadata(&[b" , "]);
        metadata(&[b"filename !"]);
        metadata(&[b"\xff"]);
        metadata(&[]);
    }
}
