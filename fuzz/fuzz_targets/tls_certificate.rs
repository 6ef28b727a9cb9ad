//! Reads changed and arbitrary certificates and keys. No certificate is used with the key of another one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u16, u8)>, Vec<(u16, u8)>, &[u8], &[u8])| {
    let (of_certificate, of_key, pem, der) = input;
    ipfrs_interface::fuzzing::tls_certificate(&of_certificate, &of_key, pem, der);
});
