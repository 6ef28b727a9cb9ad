//! Markdown files that receive the results of the targets.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// A Markdown file with the results of a target between the lines `<!-- PLACE:begin -->` and `<!-- PLACE:end -->`.
/// There, each part of the target begins with the line `<!-- PLACE:part NAME -->`. So a run replaces the parts that it
/// has measured, and the file keeps the others, even if no other file has their figures.
#[derive(Debug)]
pub(crate) struct Document {
    place: String,
    /// Text before the results.
    before: String,
    /// Name and text of each part, in order.
    parts: Vec<(String, String)>,
    /// Text after the results.
    after: String,
}

impl Document {
    /// Reads the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, has no markers for `place`, or has text between them that belongs
    /// to no part.
    pub(crate) fn read(path: &Path, place: &str) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, place).with_context(|| format!("cannot update {}", path.display()))
    }

    fn parse(text: &str, place: &str) -> Result<Self> {
        let (begin, end) = (format!("<!-- {place}:begin -->"), format!("<!-- {place}:end -->"));
        let found = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
        let Some((before, (results, after))) = found else { bail!("there are no lines {begin} and {end}") };
        let marker = format!("<!-- {place}:part ");
        let mut pieces = results.split(marker.as_str());
        let unnamed = pieces.next().unwrap_or_default().trim();
        ensure!(
            unnamed.is_empty(),
            "text after {begin} belongs to no part: insert {marker}NAME --> before it, or move it"
        );
        let mut parts = Vec::new();
        for piece in pieces {
            let (name, text) = piece.split_once(" -->").with_context(|| format!("a line {marker} has no name"))?;
            parts.push((name.to_owned(), text.trim().to_owned()));
        }
        Ok(Self { place: place.to_owned(), before: before.to_owned(), parts, after: after.to_owned() })
    }

    /// Replaces the text of a part. A new part is inserted after those that precede it in `order`. All other parts
    /// stay, including those that `order` does not have.
    pub(crate) fn set(&mut self, name: &str, text: String, order: &[&str]) {
        if let Some(index) = self.parts.iter().position(|(part, _)| part == name) {
            self.parts[index].1 = text;
            return;
        }
        let place = |name: &str| order.iter().position(|part| *part == name);
        let precedes = |part: &str| place(part).is_some_and(|part| Some(part) < place(name));
        let last = self.parts.iter().rposition(|(part, _)| precedes(part));
        self.parts.insert(last.map_or(0, |last| last + 1), (name.to_owned(), text));
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.text()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn text(&self) -> String {
        let Self { place, before, parts, after } = self;
        let mut out = format!("{before}<!-- {place}:begin -->\n");
        for (name, text) in parts {
            out.push_str(&format!("<!-- {place}:part {name} -->\n{}\n\n", text.trim()));
        }
        out.push_str(&format!("<!-- {place}:end -->{after}"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Intro\n\n<!-- x:begin -->\n<!-- x:part one -->\n1\n\n<!-- x:part gone -->\n### Old\n\n| a |\n\n\
                        <!-- x:part three -->\n3\n\n<!-- x:end -->\n\nEnd\n";

    #[test]
    fn document_keeps_parts_that_were_not_measured() -> Result<()> {
        let mut document = Document::parse(TEXT, "x")?;
        assert_eq!(document.text(), TEXT);
        let order = ["zero", "one", "two", "three", "four"];
        for (name, text) in [("two", "2\n"), ("one", "new"), ("four", "4"), ("zero", "0")] {
            document.set(name, text.to_owned(), &order);
        }
        let expected = "Intro\n\n<!-- x:begin -->\n<!-- x:part zero -->\n0\n\n<!-- x:part one -->\nnew\n\n\
                        <!-- x:part two -->\n2\n\n<!-- x:part gone -->\n### Old\n\n| a |\n\n<!-- x:part three -->\n3\n\n\
                        <!-- x:part four -->\n4\n\n<!-- x:end -->\n\nEnd\n";
        assert_eq!(document.text(), expected);
        Ok(())
    }

    #[test]
    fn document_without_parts_receives_the_first() -> Result<()> {
        let mut document = Document::parse("<!-- x:begin -->\n<!-- x:end -->\n", "x")?;
        document.set("one", "1".to_owned(), &["one"]);
        assert_eq!(document.text(), "<!-- x:begin -->\n<!-- x:part one -->\n1\n\n<!-- x:end -->\n");
        Ok(())
    }

    #[test]
    fn document_with_text_of_no_part_is_refused() {
        for text in
            ["<!-- x:begin -->\nold figures\n<!-- x:end -->", "<!-- x:begin -->", "<!-- x:begin --><!-- y:end -->"]
        {
            assert!(Document::parse(text, "x").is_err(), "{text}");
        }
    }
}
