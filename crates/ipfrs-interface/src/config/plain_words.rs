//! Texts of serde in words for users.

/// Replaces type names in messages of serde, such as `expected u16`, by descriptions for users.
pub(super) fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("u16", "an integer from 0 to 65535"),
        ("u32", "an integer from 0 to 4294967295"),
        ("u64", "an integer of 0 or more"),
        ("usize", "an integer of 0 or more"),
        ("a boolean", "true or false"),
        ("path string", "a path in quotes"),
        ("a sequence", "a list in brackets"),
        ("a map", "a table"),
    ];
    let message = message.trim();
    for (word, plain) in WORDS {
        if let Some(start) = message.strip_suffix(word).and_then(|start| start.strip_suffix("expected ")) {
            return format!("{start}expected {plain}");
        }
    }
    message.to_owned()
}
