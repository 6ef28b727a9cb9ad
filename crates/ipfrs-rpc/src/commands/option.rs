//! Options of commands: names, types, defaults, effects and help.

/// An option that Kubo defines, or an extension of ipfrs.
#[derive(Debug)]
pub struct Opt {
    names: &'static [&'static str],
    kind: Kind,
    effect: Effect,
    default: Option<&'static str>,
    help: Option<&'static str>,
}

/// Type of an option's value. Numbers have the ranges of Go's types, in every spelling of `strconv.ParseInt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A Boolean. An option without a value is true.
    Bool,
    /// A number of 32 bits with a sign.
    Int,
    /// A number of 64 bits with a sign.
    Int64,
    /// A number of 32 bits without a sign.
    Uint,
    /// A number of 64 bits without a sign.
    Uint64,
    /// Text.
    Text,
    /// Text, which may be given several times.
    List,
}

impl Kind {
    /// Returns the name of the type in Go.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Uint => "uint",
            Self::Uint64 => "uint64",
            Self::Text => "string",
            Self::List => "slice",
        }
    }
}

/// Effect of an option on a command.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// The handler reads the option.
    Read,
    /// The response depends on the option only with `encoding=text`; otherwise the client prints it.
    Printed,
    /// The response does not depend on the option, which concerns only the client's output or a network.
    Unused,
    /// The option is obeyed for all commands, before their own.
    Global,
    /// The response would depend on the option, which is not supported; the text is a remedy.
    Refused(&'static str),
}

impl Opt {
    /// Returns an option that a handler reads. The first of its names is the one that handlers use.
    pub const fn new(kind: Kind, names: &'static [&'static str]) -> Self {
        Self { names, kind, effect: Effect::Read, default: None, help: None }
    }

    pub(super) const fn bool(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Bool, names)
    }

    pub(super) const fn int(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Int, names)
    }

    pub(super) const fn int64(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Int64, names)
    }

    pub(super) const fn uint(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Uint, names)
    }

    pub(super) const fn uint64(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Uint64, names)
    }

    pub(super) const fn text(names: &'static [&'static str]) -> Self {
        Self::new(Kind::Text, names)
    }

    pub(super) const fn list(names: &'static [&'static str]) -> Self {
        Self::new(Kind::List, names)
    }

    /// Marks an option that the response does not depend on.
    pub(super) const fn unused(mut self) -> Self {
        self.effect = Effect::Unused;
        self
    }

    /// Marks an option that is obeyed for all commands.
    pub(super) const fn global(mut self) -> Self {
        self.effect = Effect::Global;
        self
    }

    /// Marks an option that only texts depend on.
    pub(super) const fn printed(mut self) -> Self {
        self.effect = Effect::Printed;
        self
    }

    /// Marks an unsupported option. A Boolean one may be false; any other must be absent.
    pub(super) const fn refused(mut self, remedy: &'static str) -> Self {
        self.effect = Effect::Refused(remedy);
        self
    }

    /// Sets the value of an option that is not given.
    pub(super) const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }

    /// Sets the text that the command line shows.
    pub(super) const fn help(mut self, text: &'static str) -> Self {
        self.help = Some(text);
        self
    }

    /// Returns the first name, which handlers use.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// Returns all names, long ones first.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Returns the type of the value.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the effect on the command.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns the value of the option if it is not given. Without one, the handler or the configuration of the daemon
    /// decides.
    pub fn default_value(&self) -> Option<&'static str> {
        self.default
    }

    /// Returns the text that the command line shows, if it offers the option.
    pub fn help_text(&self) -> Option<&'static str> {
        self.help
    }
}
