//! Permission bits of files. Kubo's API has those of Go's `fs.FileMode`.

/// The set-user-ID, set-group-ID and sticky bits in Unix, each with the corresponding bit of Go.
const SPECIAL_BITS: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];

/// Converts permission bits of Unix to those of Go.
#[must_use]
pub fn go_mode(unix: u32) -> u32 {
    let special: u32 = SPECIAL_BITS.iter().filter(|(bit, _)| unix & bit != 0).map(|(_, go)| go).sum();
    unix & 0o777 | special
}

/// Converts permission bits of Go to those of Unix.
#[must_use]
pub fn unix_mode(go: u32) -> u32 {
    let special: u32 = SPECIAL_BITS.iter().filter(|(_, bit)| go & bit != 0).map(|(unix, _)| unix).sum();
    go & 0o777 | special
}
