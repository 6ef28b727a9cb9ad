//! Authors, committers and taggers: `NAME <EMAIL> SECONDS TIMEZONE`.

use ipfrs_core::{Error, Result};
use ipld_core::ipld::Ipld;

use super::{invalid, text};
use crate::ipld::value::{Fields, map};

/// Decodes the part of a line behind `author` and a space.
pub(super) fn decode(line: &[u8]) -> Result<Ipld> {
    let malformed = || Error::invalid(format!("{:?} has no <email>", String::from_utf8_lossy(line)));
    let start = line.iter().position(|byte| *byte == b'<').ok_or_else(malformed)?;
    let length = line[start..].iter().position(|byte| *byte == b'>').ok_or_else(malformed)?;
    let (name, email) = (line[..start].trim_ascii_end(), &line[start + 1..start + length]);
    let mut when = line[start + length + 1..].split(|byte| *byte == b' ').filter(|part| !part.is_empty());
    let mut next = || text(when.next().unwrap_or_default());
    Ok(map([("date", next()?), ("timezone", next()?), ("email", text(email)?), ("name", text(name)?)]))
}

/// Encodes what [`decode`] returns.
pub(super) fn encode(value: &Ipld) -> Result<String> {
    let person = Fields::of(value, "a person")?;
    person.check_known(&["date", "timezone", "email", "name"])?;
    let [date, timezone, email, name] =
        ["date", "timezone", "email", "name"].map(|field| person.text(field).map(str::to_owned));
    let parts = [name?, format!("<{}>", email?), date?, timezone?];
    if parts.iter().any(|part| part.contains(['\n', '\0'])) {
        return Err(invalid("the fields of a person have no line ends"));
    }
    Ok(parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" "))
}
