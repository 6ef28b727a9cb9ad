//! `encoding=xml`: values as Go's `encoding/xml` writes the types of Kubo.

mod shapes;
mod writing;

use serde_json::Value;

#[cfg(test)]
pub(super) use self::shapes::always_fails;
pub(super) use self::shapes::of as shape_of;
pub(super) use self::writing::float;
use self::writing::{close, escaped, open};
use super::text::{Done, text};

/// A type of Kubo, which decides how a value is written.
#[derive(Debug)]
pub(super) enum Shape {
    Text,
    Number,
    Bool,
    Float,
    /// A number of single precision.
    Float32,
    /// A number that JSON has as octal text.
    Octal,
    Time,
    /// A content ID, in JSON a link or text.
    Cid,
    /// A value that can be any JSON.
    Any,
    /// A type whose values Go cannot write, with its name.
    Map(&'static str),
    /// Values without an element around them.
    List(&'static Shape),
    /// A value that is omitted if there is none.
    Optional(&'static Shape),
    /// A type with its name and fields.
    Struct(&'static str, &'static [Field]),
    /// A value with the name of its type.
    Named(&'static str, &'static Shape),
}

/// A field of a type.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    /// Name in JSON.
    key: &'static str,
    shape: Shape,
}

impl Shape {
    /// Writes a value of this type, or nothing if a part of it cannot be written.
    pub(super) fn write(&self, value: &Value, out: &mut String) -> Done {
        let begin = out.len();
        self.element(self.name(), value, out).inspect_err(|_| out.truncate(begin))
    }

    /// Returns the error for types of which Go writes no value.
    pub(super) fn fails(&self) -> Option<String> {
        match self {
            Self::Map(name) => Some(format!("xml: unsupported type: {name}")),
            Self::List(item) | Self::Named(_, item) => item.fails(),
            // An optional field is omitted, but not a map that is nil.
            Self::Struct(_, fields) => {
                let mut fields = fields.iter().filter(|field| !matches!(field.shape, Self::List(_)));
                fields.find_map(|field| field.shape.fails())
            }
            _ => None,
        }
    }

    /// Returns the name of the element if the value is no field.
    fn name(&self) -> &'static str {
        match self {
            Self::Struct(name, _) | Self::Named(name, _) => name,
            Self::List(item) => item.name(),
            _ => "string",
        }
    }

    fn element(&self, name: &str, value: &Value, out: &mut String) -> Done {
        match self {
            Self::Named(_, shape) => return shape.element(name, value, out),
            Self::Optional(_) | Self::Any if value.is_null() => return Ok(()),
            Self::Optional(shape) => return shape.element(name, value, out),
            Self::List(item) => {
                let mut items = value.as_array().into_iter().flatten();
                return items.try_for_each(|value| item.element(name, value, out));
            }
            Self::Any if value.is_array() => return Shape::List(&Shape::Any).element(name, value, out),
            Self::Any if value.is_object() => return Err(ANY_MAP.fails().unwrap_or_default()),
            Self::Map(_) => return Err(self.fails().unwrap_or_default()),
            _ => {}
        }
        open(out, name);
        match self {
            Self::Struct(_, fields) => {
                for field in *fields {
                    field.shape.element(field.name, &value[field.key], out)?;
                }
            }
            Self::Cid => escaped(out, value["/"].as_str().or(value.as_str()).unwrap_or(NO_CID)),
            Self::Time => escaped(out, value.as_str().unwrap_or(NO_TIME)),
            Self::Octal => {
                let number = u32::from_str_radix(text(value), 8).unwrap_or(0);
                out.push_str(&number.to_string());
            }
            Self::Bool => out.push_str(if value == true { "true" } else { "false" }),
            Self::Number => match value {
                Value::Number(number) => out.push_str(&number.to_string()),
                _ => out.push('0'),
            },
            Self::Float => out.push_str(&float(value.as_f64().unwrap_or(0.0))),
            Self::Float32 => out.push_str(&float(value.as_f64().unwrap_or(0.0) as f32)),
            _ => match value {
                Value::Bool(is_set) => out.push_str(if *is_set { "true" } else { "false" }),
                Value::Number(number) => out.push_str(&float(number.as_f64().unwrap_or(0.0))),
                value => escaped(out, text(value)),
            },
        }
        close(out, name);
        Ok(())
    }
}

/// The type of an object in JSON of any form.
static ANY_MAP: Shape = Shape::Map("map[string]interface {}");
/// How Go writes a content ID that is not set.
const NO_CID: &str = "b";
/// How Go writes a time that is not set.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Writes the error of a failed command.
pub(super) fn failure(failure: &Value) -> String {
    let mut out = String::new();
    let message = failure["Message"].as_str().unwrap_or("the command failed");
    open(&mut out, "Error");
    open(&mut out, "Message");
    escaped(&mut out, message);
    close(&mut out, "Message");
    open(&mut out, "Code");
    out.push_str(&failure["Code"].as_u64().unwrap_or(0).to_string());
    close(&mut out, "Code");
    close(&mut out, "Error");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn xml(path: &str, value: &Value) -> Result<String, String> {
        let mut out = String::new();
        shape_of(path).unwrap().write(value, &mut out).map(|()| out)
    }

    #[test]
    fn fields_have_the_order_and_zero_values_of_go() {
        let line = json!({ "Name": "a&b", "Hash": "Qm", "Size": "9" });
        assert_eq!(
            xml("add", &line).unwrap(),
            "<AddEvent><Name>a&amp;b</Name><Hash>Qm</Hash><Bytes>0</Bytes><Size>9</Size><Mode></Mode><Mtime>0</Mtime>\
             <MtimeNsecs>0</MtimeNsecs></AddEvent>"
        );
        let stats = json!({ "TotalSize": 2, "Ratio": 1.100000023841858 });
        assert_eq!(
            xml("dag/stat", &stats).unwrap(),
            "<DagStatSummary><UniqueBlocks>0</UniqueBlocks><TotalSize>2</TotalSize><SharedSize>0</SharedSize>\
             <Ratio>1.1</Ratio></DagStatSummary>"
        );
        let removed = xml("object/diff", &json!({ "Changes": [{ "Type": 1, "Path": "x", "Before": { "/": "Qm" } }] }));
        assert_eq!(
            removed.unwrap(),
            "<Changes><Changes><Type>1</Type><Path>x</Path><Before>Qm</Before><After>b</After></Changes></Changes>"
        );
    }

    #[test]
    fn values_of_settings_have_their_own_types() {
        let setting = |value| xml("config", &json!({ "Key": "K", "Value": value }));
        for (value, expected) in [
            (json!("x"), "<Value>x</Value>"),
            (json!(true), "<Value>true</Value>"),
            (json!(1_000_000), "<Value>1e+06</Value>"),
            (json!(["a", "b"]), "<Value>a</Value><Value>b</Value>"),
            (json!([]), ""),
            (json!(null), ""),
        ] {
            assert_eq!(setting(value).unwrap(), format!("<ConfigField><Key>K</Key>{expected}</ConfigField>"));
        }
        for value in [json!({}), json!([{}])] {
            let mut out = "before".to_owned();
            let setting = json!({ "Key": "K", "Value": value });
            let why = shape_of("config").unwrap().write(&setting, &mut out).unwrap_err();
            assert_eq!((why.as_str(), out.as_str()), ("xml: unsupported type: map[string]interface {}", "before"));
        }
    }

    #[test]
    fn types_with_maps_always_fail() {
        for (path, name) in [
            ("pin/ls", "map[string]pin.PinLsType"),
            ("swarm/addrs", "map[string][]string"),
            ("log/level", "map[string]string"),
            ("diag/cmds", "map[string]interface {}"),
            ("config/profile/apply", "map[string]interface {}"),
        ] {
            let why = format!("xml: unsupported type: {name}");
            assert_eq!(shape_of(path).unwrap().fails().as_ref(), Some(&why), "{path}");
        }
        for path in ["config", "ls", "commands", "pin/add"] {
            assert_eq!(shape_of(path).unwrap().fails(), None, "{path}");
        }
    }
}
