//! Reads databases of LevelDB as `migrate` does: valid ones, whose last values must be found, and arbitrary records
//! with valid checksums.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

/// The tested modules, which are a part of a program.
#[path = "../../crates/ipfrs-cli/src/kubo"]
mod kubo {
    mod leveldb;
    mod pins;

    pub(super) use leveldb::fuzzing::{records, write, writes};

    /// Reads the pins and the root of the mutable files.
    pub(super) fn read_pins(directory: &std::path::Path) {
        let store = pins::PinStore::open(directory).expect("the database is valid");
        let _ = store.scan(|pin| {
            assert!(ipfrs_core::parse_cid(&pin.cid).is_ok(), "{pin:?}");
            Ok(())
        });
        let _ = store.files_root();
    }
}

/// Part of the keys of pins.
const PINS: &[u8] = b"/pins/pin/";

/// Writes; the manifest, log and blocks of an arbitrary database; and values of pins.
type Input<'a> = (Vec<(u8, &'a [u8], Option<&'a [u8]>)>, [Vec<&'a [u8]>; 3], Vec<&'a [u8]>);

fn in_directory(run: impl FnOnce(&Path)) {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    run(directory.expect("a temporary directory can be created").path());
}

fuzz_target!(|input: Input<'_>| {
    let (writes, [manifest, batches, blocks], pins) = input;
    for prefix in [&b""[..], b"a"] {
        in_directory(|directory| kubo::writes(directory, &writes, prefix));
    }
    in_directory(|directory| kubo::records(directory, &manifest, &batches, &blocks));
    let keys: Vec<_> = (0..pins.len()).map(|number| [PINS, number.to_string().as_bytes()].concat()).collect();
    let pins: Vec<_> = keys.iter().zip(&pins).map(|(key, pin)| (0, key.as_slice(), Some(*pin))).collect();
    in_directory(|directory| {
        kubo::write(directory, &pins);
        kubo::read_pins(directory);
    });
});
