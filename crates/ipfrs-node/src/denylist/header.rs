//! The header of a denylist: a YAML mapping before the line `---`.

use ipfrs_core::{Error, Result};
use saphyr_parser::{Event, Parser};

use super::hints::Hints;

/// The only version of the format.
const VERSION: &str = "1";

/// Header fields of a denylist. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) name: String,
    /// Defaults for rules that have no hints of their own.
    pub(crate) hints: Hints,
}

impl Header {
    /// Parses the YAML before `---`. Aliases are not expanded, so a header never takes more memory than its text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the text is not YAML or its fields are not those of a
    /// header; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for another version of the format.
    pub(crate) fn parse(yaml: &str) -> Result<Self> {
        let mut events = Events(Parser::new_from_str(yaml));
        let mut header = Self::default();
        loop {
            match events.next()? {
                Some(Event::StreamStart | Event::DocumentStart(_)) => {}
                Some(Event::MappingStart(..)) => break,
                // The header contains only comments.
                None | Some(Event::StreamEnd | Event::DocumentEnd) => return Ok(header),
                Some(Event::Scalar(text, ..)) if text.is_empty() => return Ok(header),
                Some(_) => return Err(Error::invalid("it has no fields: write `name: value` on each line")),
            }
        }
        while let Some(key) = events.key()? {
            match key.as_str() {
                "version" => match events.text(&key)?.as_str() {
                    "" | VERSION => {}
                    other => {
                        let message = format!("version {other} of the format is not supported: use version 1");
                        return Err(Error::unsupported(message));
                    }
                },
                "name" => header.name = events.text(&key)?,
                "hints" => header.hints = events.hints()?,
                _ => events.skip()?,
            }
        }
        // The rest of the text must be valid YAML as well.
        while events.next()?.is_some() {}
        Ok(header)
    }
}

struct Events<'a>(Parser<'a, saphyr_parser::StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Option<Event<'a>>> {
        match self.0.next_event() {
            None => Ok(None),
            Some(Ok((event, _))) => Ok(Some(event)),
            Some(Err(e)) => {
                let line = e.marker().line();
                Err(Error::invalid(format!("line {line}: {}", e.info())))
            }
        }
    }

    /// Returns the next key of a mapping, or `None` at its end. Skips keys that are not text, together with their
    /// values.
    fn key(&mut self) -> Result<Option<String>> {
        loop {
            match self.next()? {
                Some(Event::Scalar(key, ..)) => return Ok(Some(key.into_owned())),
                Some(Event::MappingEnd) | None => return Ok(None),
                Some(first) => {
                    self.skip_from(&first)?;
                    self.skip()?;
                }
            }
        }
    }

    /// Returns a value that must be text.
    fn text(&mut self, key: &str) -> Result<String> {
        match self.next()? {
            Some(Event::Scalar(text, ..)) => Ok(text.into_owned()),
            _ => Err(Error::invalid(format!("`{key}` must be text"))),
        }
    }

    /// Returns the mapping of hints; empty if there is no value.
    fn hints(&mut self) -> Result<Hints> {
        let mut hints = Hints::default();
        match self.next()? {
            Some(Event::MappingStart(..)) => {}
            Some(Event::Scalar(text, ..)) if matches!(&*text, "" | "~" | "null") => return Ok(hints),
            _ => return Err(Error::invalid("`hints` must be a mapping of names to values")),
        }
        while let Some(key) = self.key()? {
            match self.next()? {
                Some(Event::Scalar(value, ..)) => hints.set(&key, &value),
                Some(first) => self.skip_from(&first)?,
                None => {}
            }
        }
        Ok(hints)
    }

    /// Skips a value.
    fn skip(&mut self) -> Result<()> {
        match self.next()? {
            Some(first) => self.skip_from(&first),
            None => Ok(()),
        }
    }

    /// Skips the rest of the value that begins with `first`.
    fn skip_from(&mut self, first: &Event<'_>) -> Result<()> {
        let opens = |event: &Event<'_>| matches!(event, Event::MappingStart(..) | Event::SequenceStart(..));
        let mut depth = usize::from(opens(first));
        while depth > 0 {
            match self.next()? {
                Some(event) if opens(&event) => depth += 1,
                Some(Event::MappingEnd | Event::SequenceEnd) => depth -= 1,
                Some(_) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::ErrorKind;

    use super::*;

    #[test]
    fn denylist_header_has_name_hints_and_skips_the_rest() {
        let yaml = "version: 1\nname: \"A list\"\ndescription: >\n  folded\n  text\nauthor: a@b.example\n\
                    custom: [{a: [1, 2]}, b]\n? [odd, key]\n: value\nhints:\n  gateway_status: 451\n  other: x\n";
        let header = Header::parse(yaml).unwrap();
        assert_eq!(header.name, "A list");
        assert!(header.hints.is_legal());
        for nothing in ["", "# comments alone\n", "\n\n"] {
            assert_eq!(Header::parse(nothing).unwrap(), Header::default(), "{nothing:?}");
        }
    }

    #[test]
    fn invalid_denylist_header_is_an_error() {
        for (yaml, kind) in [
            ("version: 2\n", ErrorKind::Unsupported),
            ("name: [a, b]\n", ErrorKind::InvalidInput),
            ("hints: text\n", ErrorKind::InvalidInput),
            ("- a\n- b\n", ErrorKind::InvalidInput),
            ("name: \"never closed\n", ErrorKind::InvalidInput),
            ("a: {b: ]}\n", ErrorKind::InvalidInput),
        ] {
            assert_eq!(Header::parse(yaml).unwrap_err().kind(), kind, "{yaml:?}");
        }
    }

    #[test]
    fn denylist_header_does_not_expand_aliases() {
        let mut yaml = "a0: &a0 [x, x]\n".to_owned();
        for level in 1..64 {
            yaml += &format!("a{level}: &a{level} [*a{before}, *a{before}]\n", before = level - 1);
        }
        assert_eq!(Header::parse(&(yaml + "name: tame\n")).unwrap().name, "tame");
    }
}
