//! Parsing of requests for tensors.

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result};
use ipfrs_node::{TensorFile, TensorFormat, TensorRequest};

use crate::v1::parameters::{pairs, unknown};

/// View of a file that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// The tensors themselves.
    Tensors,
    /// The list of tensors.
    Info,
    /// Statistics: counts, extremes and moments.
    Stats,
}

impl View {
    /// Returns the view with this name, which is the last segment of a path or a key of the query.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "info" => Some(Self::Info),
            "stats" => Some(Self::Stats),
            _ => None,
        }
    }
}

/// The parsed query.
#[derive(Debug)]
pub(super) struct TensorQuery {
    pub(super) view: View,
    pub(super) request: TensorRequest,
    /// The parameter `slice` or `format`, if one is present: they apply only to tensors.
    only_tensors: Option<&'static str>,
    filename: Option<String>,
}

impl TensorQuery {
    /// Parses a query. Unknown parameters are errors, since a misspelled slice would return a whole tensor.
    pub(super) fn read(query: &str) -> Result<Self> {
        let (mut slice, mut format, mut parsed) = (
            None,
            None,
            Self { view: View::Tensors, request: TensorRequest::default(), only_tensors: None, filename: None },
        );
        for (key, value) in pairs(query)? {
            let is_twice = match key.as_ref() {
                "name" => {
                    parsed.request.names.push(value.into_owned());
                    false
                }
                "slice" => slice.replace(value.parse()?).is_some(),
                "format" => format.replace(value.parse()?).is_some(),
                "filename" if value.is_empty() => false,
                "filename" => parsed.filename.replace(value.into_owned()).is_some(),
                other => match View::named(other) {
                    Some(view) => match &*value {
                        "" | "true" => std::mem::replace(&mut parsed.view, view) != View::Tensors,
                        "false" => false,
                        _ => return Err(Error::invalid(format!("{other}={value:?}: use true or false"))),
                    },
                    None => return Err(unknown(other, "use name, slice, format, filename, info or stats")),
                },
            };
            if is_twice {
                return Err(Error::invalid(format!(
                    "{key} is in the query twice, or conflicts with another parameter"
                )));
            }
        }
        parsed.only_tensors = slice.as_ref().map(|_| "slice").or(format.map(|_| "format"));
        parsed.request.slice = slice.unwrap_or_default();
        parsed.request.format = format.unwrap_or_default();
        Ok(parsed)
    }

    /// Refuses a slice or a format if the view is not [`View::Tensors`]. Called once the view is final.
    pub(super) fn check(&self) -> Result<()> {
        match (self.view, self.only_tensors) {
            (View::Tensors, _) | (_, None) => Ok(()),
            (View::Info | View::Stats, Some(key)) => Err(Error::invalid(format!(
                "{key} applies only to tensor data: info and stats describe whole tensors, in JSON"
            ))),
        }
    }

    /// Returns a strong entity tag for the bytes that this query selects in the file.
    pub(super) fn etag(&self, file: &TensorFile) -> Result<String> {
        let TensorRequest { names, slice, format } = &self.request;
        // `Debug` quotes the names, so that different lists never have the same text.
        let text = format!("{:?} {format} {slice} {names:?}", self.view);
        let hash = HashFunction::Sha2_256.digest(text.as_bytes())?;
        let digest: String = hash.digest().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("\"{}-{digest}\"", file.cid))
    }

    /// Returns the file name under which clients save the response.
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
