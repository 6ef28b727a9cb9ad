//! Options of requests: values by the types of their definitions.

use ipfrs_core::Error;
use ipfrs_rpc::commands::{Effect, Kind, Opt};

use crate::error::RpcError;

/// Returns what users should know about an option: its default, and whether it has no effect or is refused.
pub(crate) fn remark(option: &Opt) -> String {
    let effect = match option.effect() {
        Effect::Read | Effect::Global => String::new(),
        Effect::Printed => "Affects only `encoding=text`.".to_owned(),
        Effect::Unused => "No effect on the response.".to_owned(),
        Effect::Refused(remedy) => format!("Not supported: {remedy}."),
    };
    match option.default_value() {
        Some(default) => format!("{effect} Default: `{default}`.").trim_start().to_owned(),
        None => effect,
    }
}

/// Parses the value of an option.
fn value(option: &Opt, text: String) -> Result<Value, RpcError> {
    let number = |signed, min: i128, max: i128| {
        go_integer(&text, signed).filter(|number| (min..=max).contains(number)).map(Value::Number)
    };
    let value = match option.kind() {
        Kind::Text | Kind::List => return Ok(Value::Text(text)),
        Kind::Bool => go_bool(&text).map(Value::Bool),
        Kind::Int => number(true, i32::MIN.into(), i32::MAX.into()),
        Kind::Int64 => number(true, i64::MIN.into(), i64::MAX.into()),
        Kind::Uint => number(false, 0, u32::MAX.into()),
        Kind::Uint64 => number(false, 0, u64::MAX.into()),
    };
    value.ok_or_else(|| {
        let value = if text.is_empty() { "empty value".to_owned() } else { format!("value {text:?}") };
        let (kind, name) = (option.kind().name(), option.name());
        RpcError::Request(format!("could not convert {value} to type {kind:?} (for option \"-{name}\")"))
    })
}

fn check_offered(option: &Opt, given_as: &str, value: &Value) -> Result<(), RpcError> {
    match (option.effect(), value) {
        (Effect::Refused(_), Value::Bool(false))
        | (Effect::Read | Effect::Printed | Effect::Global | Effect::Unused, _) => Ok(()),
        (Effect::Refused(remedy), _) => {
            let why = format!("option {given_as:?} is not supported by this version: {remedy}");
            Err(RpcError::Refused(Error::unsupported(why)))
        }
    }
}

#[derive(Debug, Clone)]
enum Value {
    Bool(bool),
    Number(i128),
    Text(String),
}

/// Options of a request, by their first names.
#[cfg_attr(test, derive(Default))]
#[derive(Debug, Clone)]
pub(super) struct Options {
    given: Vec<Given>,
    defined: [&'static [Opt]; 3],
}

#[derive(Debug, Clone)]
struct Given {
    option: &'static str,
    value: Value,
}

impl Options {
    /// Parses the options in `defined`, and adds the defaults of those that are not given; as in Kubo, others are
    /// ignored.
    ///
    /// # Errors
    /// If a value has the wrong type, an option is given twice, possibly under two names, or an option is not
    /// supported.
    pub(super) fn read(defined: [&'static [Opt]; 3], pairs: &[(String, String)]) -> Result<Self, RpcError> {
        let defined_as = |name: &str| defined.iter().copied().flatten().find(|option| option.names().contains(&name));
        // Each name is looked up once: there may be tens of thousands.
        let known = pairs.iter().filter_map(|(name, text)| Some((defined_as(name)?, name, text)));
        let known: Vec<(&Opt, &String, &String)> = known.collect();
        for (option, name, _) in known.iter().filter(|(option, ..)| option.kind() != Kind::List) {
            let same = || known.iter().filter(|(other, ..)| other.name() == option.name());
            if let Some((_, other, _)) = same().find(|(_, other, _)| other != name) {
                return Err(RpcError::Request(format!(
                    "options {name:?} and {other:?} are the same: give one of them"
                )));
            }
            if same().nth(1).is_some() {
                let (name, values) =
                    (option.name(), same().map(|(.., text)| text.as_str()).collect::<Vec<_>>().join(" "));
                let why = format!("expected key {name} to have only a single value, received [{values}]");
                return Err(RpcError::Request(why));
            }
        }
        let mut given = Vec::new();
        for (option, name, text) in known {
            let value = value(option, text.clone())?;
            check_offered(option, name, &value)?;
            given.push(Given { option: option.name(), value });
        }
        for option in defined.into_iter().flatten() {
            let Some(default) = option.default_value() else { continue };
            if !given.iter().any(|given| given.option == option.name()) {
                given.push(Given { option: option.name(), value: value(option, default.to_owned())? });
            }
        }
        Ok(Self { given, defined })
    }

    fn find(&self, option: &str) -> Option<&Given> {
        debug_assert!(self.reads(option), "{option} is not in the command's table as an option that is read");
        self.given.iter().find(|given| given.option == option)
    }

    /// Whether the command's table allows a handler to read an option. One that is not in the table would never be
    /// found.
    pub(super) fn reads(&self, name: &str) -> bool {
        let mut options = self.defined.iter().copied().flatten();
        options.any(|option| option.name() == name && matches!(option.effect(), Effect::Read | Effect::Printed))
    }

    /// Sets a Boolean option of the command.
    pub(super) fn set(&mut self, option: &'static str) {
        self.given.retain(|given| given.option != option);
        self.given.push(Given { option, value: Value::Bool(true) });
    }

    /// Returns the value of a Boolean option that another layer processes too, if it is given.
    pub(super) fn global(&self, option: &str) -> Option<bool> {
        let given = self.given.iter().find(|given| given.option == option)?;
        Some(matches!(given.value, Value::Bool(true)))
    }

    /// Returns the value of a Boolean option, if it is given.
    pub(super) fn bool(&self, option: &str) -> Option<bool> {
        match self.find(option)?.value {
            Value::Bool(value) => Some(value),
            Value::Number(_) | Value::Text(_) => None,
        }
    }

    /// Returns the text of an option, if it is given; it may be empty.
    pub(super) fn text(&self, option: &str) -> Option<&str> {
        match &self.find(option)?.value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => None,
        }
    }

    /// Returns the texts of an option that may be given several times, and whose values may be lists with commas.
    pub(super) fn texts(&self, option: &str) -> impl Iterator<Item = &str> {
        debug_assert!(self.reads(option), "{option} is not in the command's table as an option that is read");
        let texts =
            self.given.iter().filter(move |given| given.option == option).filter_map(|given| match &given.value {
                Value::Text(text) => Some(text.split(',')),
                Value::Bool(_) | Value::Number(_) => None,
            });
        texts.flatten().filter(|text| !text.is_empty())
    }

    /// Returns the number of an option, if it is given.
    ///
    /// # Errors
    /// If it is out of the range of `T`.
    pub(super) fn number<T: TryFrom<i128>>(&self, option: &str) -> Result<Option<T>, RpcError> {
        let Some(Given { value: Value::Number(number), .. }) = self.find(option) else { return Ok(None) };
        // The value fits its option type, so only the sign can be wrong.
        let negative = |_| Error::invalid(format!("cannot specify negative {option}"));
        Ok(Some(T::try_from(*number).map_err(negative)?))
    }
}

/// Parses an unsigned number as [`Options`] do.
pub(super) fn go_number(text: &str) -> Option<u64> {
    go_integer(text, false).and_then(|number| number.try_into().ok())
}

/// Parses a Boolean as go-ipfs-cmds does, ignoring case. An option without a value is true.
pub(super) fn go_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "" | "1" | "t" | "true" => Some(true),
        "0" | "f" | "false" => Some(false),
        _ => None,
    }
}

/// Parses a number as Go does (`strconv.ParseInt` with base 0): decimal, or with the prefix `0`, `0o`, `0x` or `0b`
/// of its base, and with underscores between digits.
fn go_integer(text: &str, signed: bool) -> Option<i128> {
    let lower = text.to_ascii_lowercase();
    let unsigned = lower.strip_prefix(['+', '-']).filter(|_| signed);
    let digits = unsigned.unwrap_or(&lower);
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)];
    let prefixed = prefixes.iter().find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, *base)));
    let (digits, base) = match prefixed {
        // An underscore may follow the prefix.
        Some((rest, base)) if digits != "0" => (rest.strip_prefix('_').unwrap_or(rest), base),
        _ => (digits, 10),
    };
    let groups = digits.split('_');
    if groups.clone().any(|group| group.is_empty() || !group.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        return None;
    }
    let number = i128::from_str_radix(&groups.collect::<String>(), base).ok()?;
    Some(if lower.starts_with('-') { -number } else { number })
}

#[cfg(test)]
mod tests {
    use ipfrs_rpc::commands;

    use super::*;

    #[test]
    fn numbers_are_read_in_every_spelling_of_go() {
        for (text, number) in [
            ("0", 0),
            ("420", 420),
            ("0644", 0o644),
            ("0o644", 0o644),
            ("0x1A4", 0o644),
            ("0b1_01", 5),
            ("1_000", 1_000),
            ("0x_ff", 255),
            ("-12", -12),
            ("+7", 7),
            ("00", 0),
        ] {
            assert_eq!(go_integer(text, true), Some(number), "{text}");
        }
        for wrong in
            ["", "08", "0x", "-", "--1", "+-1", "1__0", "_1", "1_", "0x1_", "1.5", "1e3", " 1", "ff", "\u{661}"]
        {
            assert_eq!(go_integer(wrong, true), None, "{wrong}");
        }
        assert_eq!((go_integer("-1", false), go_integer("+1", false)), (None, None));
    }

    #[test]
    fn options_that_are_not_given_have_their_defaults() {
        for command in commands::all() {
            let options = Options::read(command.tables(), &[]).unwrap();
            for option in command.all_options() {
                let has_value = options.given.iter().any(|given| given.option == option.name());
                assert_eq!(has_value, option.default_value().is_some(), "{}: {}", command.path, option.name());
            }
        }
        let ping = commands::find("ping").unwrap();
        let count = |pairs: &[(String, String)]| {
            let options = Options::read(ping.tables(), pairs).unwrap();
            options.number::<i32>("count").unwrap()
        };
        assert_eq!(count(&[]), Some(10));
        assert_eq!(count(&[("n".to_owned(), "3".to_owned())]), Some(3));
    }

    #[test]
    fn number_outside_its_type_range_is_an_error() {
        for (option, most) in [
            (Opt::new(Kind::Int, &["x"]), "2147483647"),
            (Opt::new(Kind::Uint, &["x"]), "4294967295"),
            (Opt::new(Kind::Int64, &["x"]), "9223372036854775807"),
            (Opt::new(Kind::Uint64, &["x"]), "18446744073709551615"),
        ] {
            assert!(value(&option, most.into()).is_ok(), "{most}");
            let over = (most.parse::<i128>().unwrap() + 1).to_string();
            assert!(value(&option, over.clone()).is_err(), "{over}");
        }
    }
}
