//! Entries of tables, as errors name them.

use toml::Spanned;
use toml::de::DeValue;

/// Returns the name of an entry as in a file, in quotation marks if it needs them.
pub(super) fn shown_name(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { name.to_owned() } else { format!("{name:?}") }
}

/// Returns the first integer in a value that TOML parsers need not support, with its place and the names of the entries
/// that lead to it. The error of the library names no key.
pub(super) fn large_integer(value: &Spanned<DeValue<'_>>) -> Option<(usize, String, String)> {
    match value.get_ref() {
        DeValue::Integer(number) if i64::from_str_radix(number.as_str(), number.radix()).is_err() => {
            Some((value.span().start, String::new(), number.to_string()))
        }
        DeValue::Array(values) => values.iter().find_map(large_integer),
        DeValue::Table(values) => values.iter().find_map(|(name, value)| {
            let (offset, entry, number) = large_integer(value)?;
            Some((offset, format!(".{}{entry}", shown_name(name.get_ref())), number))
        }),
        _ => None,
    }
}
