//! What a request for tensors asks for.

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result};
use ipfrs_node::{TensorFile, TensorFormat, TensorRequest};

/// What of a file is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// Tensors themselves.
    Tensors,
    /// The list of them.
    Info,
    /// Counts, extremes and moments.
    Stats,
}

impl View {
    /// The view that a last segment of a path, or a word of a query, names.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "info" => Some(Self::Info),
            "stats" => Some(Self::Stats),
            _ => None,
        }
    }
}

/// The query.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) view: View,
    pub(super) request: TensorRequest,
    /// `slice` or `format`, where one of them is there: they are of tensors only.
    only_tensors: Option<&'static str>,
    filename: Option<String>,
}

impl Asked {
    /// Reads a query. What is not known is refused: a slice that is misspelt would give all of a tensor.
    pub(super) fn read(query: &str) -> Result<Self> {
        let (mut slice, mut format, mut asked) = (
            None,
            None,
            Self { view: View::Tensors, request: TensorRequest::default(), only_tensors: None, filename: None },
        );
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_twice = match key.as_ref() {
                "name" => {
                    asked.request.names.push(value.into_owned());
                    false
                }
                "slice" => slice.replace(value.parse()?).is_some(),
                "format" => format.replace(value.parse()?).is_some(),
                "filename" if value.is_empty() => false,
                "filename" => asked.filename.replace(value.into_owned()).is_some(),
                other => match View::named(other) {
                    Some(view) => std::mem::replace(&mut asked.view, view) != View::Tensors,
                    None => {
                        return Err(Error::invalid(format!(
                            "unknown parameter {other:?}: known are name, slice, format, filename, info and stats"
                        )));
                    }
                },
            };
            if is_twice {
                return Err(Error::invalid(format!("{key} is in the query twice, or beside what rules it out")));
            }
        }
        asked.only_tensors = slice.as_ref().map(|_| "slice").or(format.map(|_| "format"));
        asked.request.slice = slice.unwrap_or_default();
        asked.request.format = format.unwrap_or_default();
        Ok(asked)
    }

    /// Refuses a slice and a format of what is no tensor; for when the view is known for good.
    pub(super) fn check(&self) -> Result<()> {
        match (self.view, self.only_tensors) {
            (View::Tensors, _) | (_, None) => Ok(()),
            (View::Info | View::Stats, Some(key)) => Err(Error::invalid(format!(
                "{key} is of tensors: the list and the statistics are of whole ones, in JSON"
            ))),
        }
    }

    /// A strong entity tag: that of the bytes which this asks of the file.
    pub(super) fn etag(&self, file: &TensorFile) -> Result<String> {
        let TensorRequest { names, slice, format } = &self.request;
        // Of names, which are any text, no list reads as another.
        let text = format!("{:?} {format} {slice} {names:?}", self.view);
        let hash = HashFunction::Sha2_256.digest(text.as_bytes())?;
        let digest: String = hash.digest().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("\"{}-{digest}\"", file.cid))
    }

    /// The name under which clients save the answer.
    pub(super) fn file_name(&self, file: &TensorFile) -> String {
        if let Some(filename) = &self.filename {
            return filename.clone();
        }
        let cid = file.cid.to_string();
        let name = match self.request.names.as_slice() {
            [name] if !name.is_empty() => name,
            _ => &cid,
        };
        let extension = match self.request.format {
            TensorFormat::Raw => "bin",
            TensorFormat::Npy => "npy",
            TensorFormat::Safetensors => "safetensors",
            TensorFormat::Arrow => "arrows",
        };
        format!("{}.{extension}", name.replace(['/', '\\'], "_"))
    }
}
