//! Parses arbitrary bytes as the beginning of a tensor file. All tensors of an accepted header must be within the
//! file.
#![no_main]

use ipfrs_tensor::{Catalogue, Header, PREFIX_BYTES, tensor_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, &[u8])| {
    let (file_bytes, file) = input;
    let file_bytes = u64::from(file_bytes);
    let Ok(header) = Header::of(&file[..file.len().min(PREFIX_BYTES)], file_bytes) else { return };
    let Some(header) = file.get(..header.bytes) else { return };
    let Ok(catalogue) = Catalogue::parse(header, file_bytes) else { return };
    for tensor in catalogue.tensors() {
        assert_eq!(tensor_bytes(tensor.dtype, &tensor.shape).ok(), Some(tensor.bytes));
        let end = tensor.offset.checked_add(tensor.bytes).expect("offsets do not overflow");
        assert!(tensor.offset >= header.len() as u64 && end <= file_bytes);
        assert_eq!(catalogue.get(&tensor.name).ok(), Some(tensor));
    }
});
