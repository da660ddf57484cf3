//! Lists gollum's plugins and options, and what each becomes.
//!
//! One table serves everything. The reader checks keys and types against it and takes its remarks and
//! refusals from it. A test compares the page `docs/from-gollum.md` with it. If a table calls an option used
//! but no code reads it, the option is a mistake in every file, so a table cannot promise too much.

mod amazon;
mod cluster;
pub mod consumers;
mod filters;
pub mod formatters;
pub mod producers;
mod routers;

/// The role of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads messages.
    Consumer,
    /// Writes messages.
    Producer,
    /// Owns a stream.
    Router,
    /// Decides which messages pass.
    Filter,
    /// Changes messages.
    Formatter,
}

impl Role {
    /// Returns the word before the dot of a plugin's type.
    pub fn word(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Producer => "producer",
            Self::Router => "router",
            Self::Filter => "filter",
            Self::Formatter => "format",
        }
    }
}

/// The type of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Text; numbers and booleans are used as written.
    Text,
    /// A whole number, also as text.
    Number,
    /// `true` or `false`, also as text.
    Flag,
    /// A list of texts; one text is a list of one.
    List,
    /// A mapping of names to texts.
    Map,
    /// A mapping of names to settings.
    Groups,
    /// A list of plugins: names, or names with their settings.
    Plugins,
}

/// How an option is supported.
#[derive(Debug, Clone, Copy)]
pub enum OptionSupport {
    /// It is honoured in this way.
    Used(&'static str),
    /// It is accepted without effect, for this reason.
    Idle(&'static str),
    /// It is a mistake; this text names the alternative.
    Refused(&'static str),
}

/// An option of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct OptionRule {
    /// Its name, with a slash for each level: `Batch/MaxCount`.
    pub name: &'static str,
    /// The type of its value.
    pub takes: Takes,
    /// How it is supported.
    pub support: OptionSupport,
}

/// A type of plugin.
#[derive(Debug)]
pub struct PluginKind {
    /// Its name, for example `consumer.File`.
    pub name: &'static str,
    /// Its role.
    pub role: Role,
    /// The equivalent here, in the words of the page.
    pub becomes: &'static str,
    /// Its own options.
    pub options: &'static [OptionRule],
    /// The options that it shares with other types.
    pub shared: &'static [&'static [OptionRule]],
    /// Why it has no equivalent, and what to do: one or two sentences.
    pub refused: Option<&'static str>,
}

impl PluginKind {
    /// Returns all its options.
    pub fn all(&'static self) -> impl Iterator<Item = &'static OptionRule> {
        self.options.iter().chain(self.shared.iter().copied().flatten())
    }
}

pub(super) const fn used(name: &'static str, takes: Takes, how: &'static str) -> OptionRule {
    OptionRule { name, takes, support: OptionSupport::Used(how) }
}

pub(super) const fn idle(name: &'static str, takes: Takes, why: &'static str) -> OptionRule {
    OptionRule { name, takes, support: OptionSupport::Idle(why) }
}

pub(super) const fn refused(name: &'static str, takes: Takes, instead: &'static str) -> OptionRule {
    OptionRule { name, takes, support: OptionSupport::Refused(instead) }
}

/// All types, in the order of the page.
pub fn kinds() -> impl Iterator<Item = &'static PluginKind> {
    [consumers::KINDS, routers::KINDS, filters::KINDS, formatters::KINDS, producers::KINDS]
        .into_iter()
        .flatten()
}

/// Returns a type by its name, ignoring case as v0.5 did.
pub fn kind(name: &str) -> Option<&'static PluginKind> {
    kinds().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// Filters and formatters that v0.6 does not have.
pub const ONLY_IN_05: &[&str] = &[
    "filter.JSON",
    "format.Clear",
    "format.CollectdToInflux08",
    "format.CollectdToInflux09",
    "format.CollectdToInflux10",
    "format.ExtractJSON",
    "format.GrokToJSON",
    "format.JSONToArray",
    "format.JSONToInflux10",
    "format.MetadataCopy",
    "format.ProcessJSON",
    "format.ProcessTSV",
    "format.Serialize",
    "format.SplitToJSON",
    "format.TemplateJSON",
    "format.TextToJSON",
];
