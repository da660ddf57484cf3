//! What gollum has: each plugin with each of its options, and what becomes of it.
//!
//! One table serves all: reading checks keys and types by it, and refuses or remarks what it says; the page
//! `docs/from-gollum.md` is held against it by a test. An option that a table calls used and that no code reads is
//! a mistake when a file has it, so a table cannot promise what is not done.

pub mod consumers;
mod filters;
pub mod formatters;
pub mod producers;
mod routers;

/// What a plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It reads.
    Consumer,
    /// It writes.
    Producer,
    /// It owns a stream.
    Router,
    /// It lets messages pass or not.
    Filter,
    /// It changes messages.
    Formatter,
}

impl Role {
    /// The word before the dot of a plugin's type.
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

/// What the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Text; numbers and truth values are taken as they were written.
    Text,
    /// A whole number, also as text.
    Number,
    /// `true` or `false`, also as text.
    Flag,
    /// A list of texts; one text is a list of one.
    List,
    /// Names and texts.
    Map,
    /// A list of plugins: names, or names with their settings.
    Plugins,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
pub enum OptionSupport {
    /// It is honoured, in this way.
    Used(&'static str),
    /// It is accepted and means nothing here, for this reason.
    Idle(&'static str),
    /// It is a mistake; this is to be used instead.
    Refused(&'static str),
}

/// An option of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct OptionRule {
    /// Its name, with a slash for each level: `Batch/MaxCount`.
    pub name: &'static str,
    /// What its value is.
    pub takes: Takes,
    /// What becomes of it.
    pub fate: OptionSupport,
}

/// A type of plugin.
#[derive(Debug)]
pub struct PluginKind {
    /// Its type: `consumer.File`.
    pub name: &'static str,
    /// What it is.
    pub role: Role,
    /// What it becomes, in the words of the page.
    pub becomes: &'static str,
    /// Its own options.
    pub options: &'static [OptionRule],
    /// Those that it shares with others.
    pub shared: &'static [&'static [OptionRule]],
    /// Why there is nothing that it could become, and what to do; a whole sentence or two.
    pub refused: Option<&'static str>,
}

impl PluginKind {
    /// All its options.
    pub fn all(&'static self) -> impl Iterator<Item = &'static OptionRule> {
        self.options.iter().chain(self.shared.iter().copied().flatten())
    }
}

pub(super) const fn used(name: &'static str, takes: Takes, how: &'static str) -> OptionRule {
    OptionRule { name, takes, fate: OptionSupport::Used(how) }
}

pub(super) const fn idle(name: &'static str, takes: Takes, why: &'static str) -> OptionRule {
    OptionRule { name, takes, fate: OptionSupport::Idle(why) }
}

pub(super) const fn refused(name: &'static str, takes: Takes, instead: &'static str) -> OptionRule {
    OptionRule { name, takes, fate: OptionSupport::Refused(instead) }
}

/// All types, in the order of the page.
pub fn kinds() -> impl Iterator<Item = &'static PluginKind> {
    [consumers::KINDS, routers::KINDS, filters::KINDS, formatters::KINDS, producers::KINDS]
        .into_iter()
        .flatten()
}

/// The type of this name; names are not case-sensitive, as they were not in v0.5.
pub fn kind(name: &str) -> Option<&'static PluginKind> {
    kinds().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// Types that only older versions had, and what to use instead.
pub const GONE: &[(&str, &str)] = &[
    ("filter.JSON", "Use `format.JSON`, then `filter.RegExp` with `Target`."),
    ("format.Clear", "Use `format.Delete`."),
    ("format.CollectdToInflux08", "Use `format.JSON` and `format.Template`."),
    ("format.CollectdToInflux09", "Use `format.JSON` and `format.Template`."),
    ("format.CollectdToInflux10", "Use `format.JSON` and `format.Template`."),
    ("format.GrokToJSON", "Use `format.Grok`, then `format.ToJSON`."),
    ("format.JSONToArray", "Use `format.JSON`, then `format.ToCSV`."),
    ("format.JSONToInflux10", "Use `format.JSON` and `format.Template`."),
    ("format.JSON (v0.4)", "Use `format.Grok` or `format.RegExp`, then `format.ToJSON`."),
    ("format.MetadataCopy", "Use `format.Copy` with `Target`, then formatters with `ApplyTo`."),
    ("format.ProcessTSV", "Use `format.SplitToFields`, formatters with `ApplyTo`, then `format.ToCSV`."),
    ("format.Serialize", "Messages need no envelope of gollum's: leave it out."),
    ("format.SplitToJSON", "Use `format.SplitToFields`, then `format.ToJSON`."),
    ("format.TemplateJSON", "Use `format.JSON`, then `format.Template`."),
    ("format.TextToJSON", "Use `format.Grok` or `format.RegExp`, then `format.ToJSON`."),
];
